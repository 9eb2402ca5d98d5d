//! The replacement of the `:authority`, by hand-made blocks and frames.

use proptest::prelude::*;
use tokio::io::AsyncReadExt as _;

use super::{END_HEADERS, FRAME, Frames, HEADERS, PADDED, PREFACE, PRIORITY, Renamed, frame, renamed};

/// A frame with this payload.
fn framed(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [.., high, middle, low] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[high, middle, low, kind, flags, 0, 0, 0, stream], payload].concat()
}

#[test]
fn the_authority_alone_is_replaced_wherever_it_is_written_out() {
    let long = |prefix: &[u8], length: u8| -> Vec<u8> {
        // 127 and more take a second byte.
        [prefix, &[0x7f, length - 127], &vec![b'%'; usize::from(length)]].concat()
    };
    for (what, block, expected) in [
        ("entries of the tables", vec![0x83, 0x86, 0xc1, 0xff, 0x80, 0x01], None),
        ("an authority that is added to the table", b"\x83\x41\x05%2Fab\x86".to_vec(), Some(&b"\x83\x41\x01k\x86"[..])),
        ("one that is not", b"\x01\x05%2Fab".to_vec(), Some(b"\x01\x01k")),
        ("one that never is", b"\x11\x05%2Fab".to_vec(), Some(b"\x11\x01k")),
        ("one in Huffman's code", b"\x41\x83\xff\xff\xff".to_vec(), Some(b"\x41\x01k")),
        ("a long one", long(b"\x41", 200), Some(b"\x41\x01k")),
        ("an empty one", b"\x41\x00".to_vec(), None),
        ("another header", b"\x44\x05%2Fab".to_vec(), None),
        ("a header with a name of its own", b"\x40\x02te\x08trailers\x00\x01a\x01b".to_vec(), None),
        ("a name of the later table", b"\x7f\x01\x03abc\x0f\x30\x02de".to_vec(), None),
        ("another size of the table", vec![0x3f, 0xe1, 0x1f, 0x20, 0x83], None),
        ("nothing", vec![], None),
    ] {
        assert_eq!(renamed(&block).unwrap(), expected.unwrap_or(&block), "{what}");
    }
    for (what, block) in [
        ("a value that ends early", &b"\x41\x05%2F"[..]),
        ("a name that ends early", b"\x40\x05te"),
        ("no value", b"\x41"),
        ("a number without an end", b"\xff\xff\xff\xff\xff\xff\x01"),
        ("a length that no frame has", b"\x41\x7f\xff\xff\xff\x7f"),
    ] {
        assert_eq!(renamed(block), None, "{what}");
    }
}

#[test]
fn padding_and_priority_stay_around_the_block_and_what_is_broken_goes_on_as_it_is() {
    let (old, new) = (&b"\x83\x41\x05%2Fab"[..], &b"\x83\x41\x01k"[..]);
    let padded = |block: &[u8]| [&[2], block, &[0, 0]].concat();
    let weighted = |block: &[u8]| [&[0, 0, 0, 0, 7], block].concat();
    let both = |block: &[u8]| [&[2, 0, 0, 0, 0, 7], block, &[0, 0]].concat();
    let end = END_HEADERS;
    for (came, expected) in [
        (framed(HEADERS, end, 1, old), framed(HEADERS, end, 1, new)),
        (framed(HEADERS, end | PADDED, 1, &padded(old)), framed(HEADERS, end | PADDED, 1, &padded(new))),
        (framed(HEADERS, end | PRIORITY, 1, &weighted(old)), framed(HEADERS, end | PRIORITY, 1, &weighted(new))),
        (
            framed(HEADERS, end | PADDED | PRIORITY, 1, &both(old)),
            framed(HEADERS, end | PADDED | PRIORITY, 1, &both(new)),
        ),
        // Of another type, not whole, with more padding than bytes, and broken.
        (framed(0, end, 1, old), framed(0, end, 1, old)),
        (framed(HEADERS, 0, 1, old), framed(HEADERS, 0, 1, old)),
        (framed(HEADERS, end | PADDED, 1, &[9, 0x83]), framed(HEADERS, end | PADDED, 1, &[9, 0x83])),
        (framed(HEADERS, end | PADDED, 1, &[]), framed(HEADERS, end | PADDED, 1, &[])),
        (framed(HEADERS, end, 1, b"\x41\x05%"), framed(HEADERS, end, 1, b"\x41\x05%")),
    ] {
        let (mut frames, mut out) = (Frames { waiting: Vec::new(), through: 0 }, Vec::new());
        frames.take(&came, &mut out);
        assert_eq!(out, expected, "of {came:?}");
    }
}

/// What a client may send after its preface: frames of any type, some of headers with an authority.
fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let other = (any::<u8>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..40))
        .prop_filter("of headers", |(kind, ..)| *kind != HEADERS)
        .prop_map(|(kind, flags, payload)| framed(kind, flags, 3, &payload));
    let headers = prop::collection::vec(any::<u8>(), 1..40).prop_map(|name| {
        let block = [&[0x83, 0x41, u8::try_from(name.len()).unwrap()], &name[..], &[0x86]].concat();
        framed(HEADERS, END_HEADERS, 1, &block)
    });
    prop::collection::vec(prop_oneof![other, headers], 0..12)
}

proptest! {
    /// In however many pieces the bytes come, each frame comes out once, in its order, and only the authority is another.
    #[test]
    fn the_pieces_in_which_bytes_come_change_nothing(frames in frames(), pieces in prop::collection::vec(1_usize..30, 1..60)) {
        let came = [vec![b'P'; PREFACE], frames.concat()].concat();
        let mut reader = Frames::new();
        let (mut out, mut rest, mut pieces) = (Vec::new(), &came[..], pieces.iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
            reader.take(piece, &mut out);
            rest = after;
        }
        prop_assert!(reader.waiting.is_empty());
        let mut left = &out[PREFACE..];
        for one in &frames {
            let (length, kind) = frame(left).unwrap();
            let (got, after) = left.split_at(FRAME + length);
            if kind == HEADERS {
                prop_assert_eq!(&got[FRAME..], b"\x83\x41\x01k\x86");
            } else {
                prop_assert_eq!(got, &one[..]);
            }
            left = after;
        }
        prop_assert!(left.is_empty());
    }

    #[test]
    fn no_bytes_are_too_broken(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = renamed(&bytes);
        let (mut reader, mut out) = (Frames { waiting: Vec::new(), through: 0 }, Vec::new());
        reader.take(&bytes, &mut out);
    }
}

#[tokio::test]
async fn what_a_client_leaves_unfinished_is_read_to_its_end() {
    let preface = [b'P'; PREFACE];
    let begun = &framed(HEADERS, END_HEADERS, 1, b"\x83\x41\x05%2Fab")[..14];
    let came = [&preface[..], begun].concat();
    let mut read = Vec::new();
    Renamed::new(&came[..]).read_to_end(&mut read).await.unwrap();
    assert_eq!(read, came);
}
