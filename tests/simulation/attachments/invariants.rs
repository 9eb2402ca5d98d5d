//! The invariants of attach-detach spec 18, and what matters to who has data on a volume. `mutants` has one for each that breaks it.

crate::smaller::rules! {
    I1 "no attachment is deleted while its node reports the volume",
    I2 "no attachment is deleted while a healthy node uses the volume, as its kubelet had said when the report was withdrawn",
    I3 "from a lost node it is taken by force only with the taint, or after the wait where the timer may force",
    I4 "an exclusive volume has one attachment at a time",
    I5 "an attachment is made only where a pod wants the volume on a managed node, and never deleted while one does",
    I6 "a node reports only what is attached to it, and what others have in the list stays as it is",
    I7 "name and spec of an attachment are of one volume, and a deletion names the uid",
    I8 "one status of a node and one attachment are written by one request at a time",
    I9 "finalizers of attachments are left alone",
    I11 "nothing is written without the Lease, nor beside the other controller",
    I12 "what a pod wants has an attachment in the end, or the pod is told why not",
    Own "nothing is written but attachments, the list of attached volumes, and Events",
    Mounted "what is mounted on a node is attached to it, unless it was taken by force or by hand",
    Alone "an exclusive volume is mounted on one node, unless it was taken by force or by hand",
    End "once nothing goes wrong any more, what there is follows within the stated time from what pods want, whoever led (I10)",
}
