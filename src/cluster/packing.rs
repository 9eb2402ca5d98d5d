//! Objects as bytes: what a cache holds of an object of another driver, in a quarter of the memory. Pure.
//!
//! What is packed comes out as it went in, which the cache checks before it holds the bytes alone ([`Packed::of`]). A text takes one
//! byte if many objects have it, and what it says if it is a number or ends in a uid or a checksum. The bytes live as long as the
//! process, and no longer: they have no version.

use super::names::WORDS;

/// The first byte of a text that is shorter than this is its length.
const SHORT: u8 = 200;
/// The first byte of a word is this and its place in [`WORDS`].
const WORD: u8 = SHORT;
const NONE: u8 = 250;
const NUMBER: u8 = 251;
const UID: u8 = 252;
const CHECKSUM: u8 = 253;
const LONG: u8 = 254;
/// Digits of a uid, and where its dashes are.
const UID_DIGITS: usize = 32;
const DASHES: [usize; 4] = [8, 13, 18, 23];
/// Digits of a SHA-256, which ends the name of a `VolumeAttachment`.
const CHECKSUM_DIGITS: usize = 64;

/// An object that can be packed.
pub(super) trait Pack: PartialEq + Sized {
    /// Writes what [`Self::unpack`] reads.
    fn pack(&self, to: &mut Writer);

    /// Reads what [`Self::pack`] has written.
    fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// An object as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed(Box<[u8]>);

impl Packed {
    /// The object as bytes. `None`: it would not come out of them as it is.
    pub(super) fn of<T: Pack>(object: &T) -> Option<Self> {
        // More than an object has, and then copied: what a text leaves of its memory as it shrinks would lie idle.
        let mut writer = Writer(Vec::with_capacity(512));
        object.pack(&mut writer);
        let packed = Self(writer.0.as_slice().into());
        (packed.open::<T>().as_ref() == Some(object)).then_some(packed)
    }

    /// The object.
    pub(super) fn open<T: Pack>(&self) -> Option<T> {
        T::unpack(&mut Reader(&self.0)).ok()
    }
}

/// Writes an object.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Writes a text.
    pub(super) fn text(&mut self, text: &str) {
        if let Some(word) = WORDS.iter().position(|word| *word == text).and_then(|at| u8::try_from(at).ok()) {
            self.0.push(WORD + word);
        } else if let Some(number) = text.parse::<u64>().ok().filter(|number| number.to_string() == text) {
            self.0.push(NUMBER);
            self.number(number);
        } else if !self.ending(UID, text, UID_DIGITS + DASHES.len()) && !self.ending(CHECKSUM, text, CHECKSUM_DIGITS) {
            match u8::try_from(text.len()) {
                Ok(length) if length < SHORT => self.0.push(length),
                _ => {
                    self.0.push(LONG);
                    self.number(text.len() as u64);
                }
            }
            self.0.extend_from_slice(text.as_bytes());
        }
    }

    /// Writes a text that may be absent.
    pub(super) fn optional(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.text(text),
            None => self.0.push(NONE),
        }
    }

    /// Writes texts that may be absent together.
    pub(super) fn optionals<'a>(&mut self, texts: Option<impl ExactSizeIterator<Item = &'a str>>) {
        // 0 is said of what is absent.
        self.number(texts.as_ref().map_or(0, |texts| texts.len() as u64 + 1));
        texts.into_iter().flatten().for_each(|text| self.text(text));
    }

    /// Seven bits a byte, the lowest first.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }

    /// Writes a text that ends in so many hexadecimal digits, with the dashes of a uid if it is one. `false`: it does not.
    fn ending(&mut self, kind: u8, text: &str, length: usize) -> bool {
        let Some((start, end)) = text.len().checked_sub(length).and_then(|at| text.split_at_checked(at)) else {
            return false;
        };
        let Some((digits, start_length)) = digits(kind, end).zip(u8::try_from(start.len()).ok()) else { return false };
        self.0.extend([kind, start_length]);
        self.0.extend_from_slice(start.as_bytes());
        self.0.extend(digits);
        true
    }
}

/// The digits, two a byte.
fn digits(kind: u8, text: &str) -> Option<Vec<u8>> {
    let is_dash = |at: usize| kind == UID && DASHES.contains(&at);
    let are_dashes = text.bytes().enumerate().all(|(at, byte)| (byte == b'-') == is_dash(at));
    let values: Option<Vec<u8>> = text.bytes().filter(|byte| *byte != b'-').map(digit).collect();
    Some(values.filter(|_| are_dashes)?.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// The bytes are not those of [`Writer`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Reads an object.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// Reads a text.
    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        self.optional()?.ok_or(Malformed)
    }

    /// Reads a text that may be absent.
    pub(super) fn optional(&mut self) -> Result<Option<String>, Malformed> {
        let text = match self.byte()? {
            NONE => return Ok(None),
            NUMBER => self.number()?.to_string(),
            UID => self.ending(UID_DIGITS / 2, &DASHES)?,
            CHECKSUM => self.ending(CHECKSUM_DIGITS / 2, &[])?,
            LONG => {
                let length = self.number()?;
                self.plain(usize::try_from(length).map_err(|_| Malformed)?)?
            }
            length @ ..SHORT => self.plain(length.into())?,
            word => (*WORDS.get(usize::from(word - WORD)).ok_or(Malformed)?).to_owned(),
        };
        Ok(Some(text))
    }

    /// Reads texts that may be absent together.
    pub(super) fn optionals(&mut self) -> Result<Option<Vec<String>>, Malformed> {
        let Some(count) = self.number()?.checked_sub(1) else { return Ok(None) };
        (0..count).map(|_| self.text()).collect::<Result<_, _>>().map(Some)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    fn bytes(&mut self, count: usize) -> Result<&[u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn plain(&mut self, length: usize) -> Result<String, Malformed> {
        std::str::from_utf8(self.bytes(length)?).map(str::to_owned).map_err(|_| Malformed)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift).ok_or(Malformed)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
    }

    fn ending(&mut self, bytes: usize, dashes: &[usize]) -> Result<String, Malformed> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let length = self.byte()?;
        let mut text = self.plain(length.into())?;
        let start = text.len();
        for byte in self.bytes(bytes)? {
            for digit in [byte >> 4, byte & 0xf] {
                if dashes.contains(&(text.len() - start)) {
                    text.push('-');
                }
                text.push(char::from(DIGITS[usize::from(digit)]));
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Pack for String {
        fn pack(&self, to: &mut Writer) {
            to.text(self);
        }

        fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
            from.text()
        }
    }

    impl Pack for (Option<String>, Option<Vec<String>>) {
        fn pack(&self, to: &mut Writer) {
            to.optional(self.0.as_deref());
            to.optionals(self.1.as_ref().map(|texts| texts.iter().map(String::as_str)));
        }

        fn unpack(from: &mut Reader<'_>) -> Result<Self, Malformed> {
            Ok((from.optional()?, from.optionals()?))
        }
    }

    /// The bytes of a text, which is read as it was.
    fn size(text: &str) -> usize {
        Packed::of(&text.to_owned()).expect("it comes out as it went in").0.len()
    }

    #[test]
    fn what_most_objects_say_takes_few_bytes() {
        let (uid, checksum) = ("0a1b2c3d-0000-4000-8000-0123456789ab", "0123456789abcdef".repeat(4));
        for (text, bytes) in [
            ("kubernetes.io/pv-protection".to_owned(), 1),
            (String::new(), 1),
            ("127".to_owned(), 2),
            ("123456789".to_owned(), 5),
            (u64::MAX.to_string(), 11),
            (uid.to_owned(), 18),
            (format!("pvc-{uid}"), 22),
            (format!("csi-{checksum}"), 38),
            ("gold".to_owned(), 5),
        ] {
            assert_eq!(size(&text), bytes, "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_number_or_a_uid_is_kept_letter_by_letter() {
        let uid = "0a1b2c3d-0000-4000-8000-0123456789ab";
        for text in [
            "007".to_owned(),
            "+7".to_owned(),
            "18446744073709551616".to_owned(),
            uid.to_uppercase(),
            uid.replace('-', "0"),
            uid.replacen("0a", "0-", 1),
            format!("{uid}0"),
            format!("ü{}", &uid[1..]),
            "é".repeat(200),
            format!("{}{uid}", "n".repeat(300)),
        ] {
            assert!(size(&text) > text.len(), "{text}");
        }
    }

    #[test]
    fn bytes_that_were_cut_are_no_object() {
        let whole = Packed::of(&format!("pvc-{}", "0a1b2c3d-0000-4000-8000-0123456789ab")).unwrap();
        for length in 0..whole.0.len() {
            assert_eq!(Packed(whole.0[..length].into()).open::<String>(), None, "{length}");
        }
        assert_eq!(Packed([0xff; 20].into()).open::<String>(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn any_text_comes_out_as_it_went_in(
            text in prop_oneof![".{0,40}", "[0-9]{0,21}", "[a-f0-9-]{30,110}", "(pvc-)?[a-f0-9]{8}(-[a-f0-9]{4}){3}-[a-f0-9]{12}"],
            texts in prop::option::of(prop::collection::vec(".{0,9}", 0..5)),
        ) {
            prop_assert!(Packed::of(&text).is_some());
            prop_assert!(Packed::of(&(Some(text), texts.clone())).is_some());
            prop_assert!(Packed::of(&(None, texts)).is_some());
        }

        #[test]
        fn any_bytes_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Packed(bytes.into()).open::<(Option<String>, Option<Vec<String>>)>();
        }
    }
}
