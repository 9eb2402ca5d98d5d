//! The manifests that are read, as one stream of documents in which each line knows its file. Pure.

/// One file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// How messages call it.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// All of them. A controller's workload may be in one file, and the driver's `CSIDriver` object in another.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Their documents.
    pub(super) text: String,
    /// The first line of each file in it, from 0, and the file's name.
    starts: Vec<(usize, String)>,
}

impl Stream {
    /// Joins files in their order.
    pub(super) fn of(manifests: &[Manifest]) -> Self {
        let mut stream = Self::default();
        for Manifest { name, text } in manifests {
            if !stream.text.is_empty() {
                stream.text.push_str(if stream.text.ends_with('\n') { "---\n" } else { "\n---\n" });
            }
            stream.starts.push((stream.text.lines().count(), name.clone()));
            stream.text.push_str(text);
        }
        stream
    }

    /// The start and the name of the file of a line of the stream, from 1.
    pub(super) fn file(&self, line: usize) -> Option<&(usize, String)> {
        self.starts.iter().rev().find(|(start, _)| *start < line)
    }

    /// The file and the line in it, from 1, of a line of the stream, from 1.
    pub(super) fn place(&self, line: usize) -> String {
        self.file(line).map_or_else(|| format!("line {line}"), |(start, name)| format!("{name}:{}", line - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, text: &str) -> Manifest {
        Manifest { name: name.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn files_are_documents_of_one_stream_whether_or_not_they_end_with_a_line() {
        let stream = Stream::of(&[manifest("a", "x: 1"), manifest("b", "y: 2\n"), manifest("c", "z: 3\n")]);
        assert_eq!(stream.text, "x: 1\n---\ny: 2\n---\nz: 3\n");
        assert_eq!(Stream::of(&[manifest("a", "x: 1\n")]).text, "x: 1\n", "a single one is as it is");
        assert_eq!(Stream::of(&[manifest("empty", ""), manifest("b", "y: 2\n")]).text, "y: 2\n");
    }

    #[test]
    fn each_line_knows_its_file() {
        let stream = Stream::of(&[manifest("a", "x: 1\nx: 2"), manifest("b", "y: 1\ny: 2\n"), manifest("c", "z: 1\n")]);
        let places = [(1, "a:1"), (2, "a:2"), (4, "b:1"), (5, "b:2"), (7, "c:1")];
        for (line, place) in places {
            assert_eq!(stream.place(line), place);
        }
    }
}
