//! Messages of the specification in a file of the storage: their bytes, as base64. For serde's `with`. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde::de::{Deserialize as _, Deserializer, Error};
use serde::ser::Serializer;

use base::proto::VolumeCapability;

/// One message, or one that may be missing, or several.
pub(super) trait Messages: Sized {
    /// Their type.
    type Message: Message + Default;

    /// All of them.
    fn all(&self) -> Vec<&Self::Message>;

    /// The same from what [`Messages::all`] gave. `None`: too many or too few.
    fn from_all(messages: Vec<Self::Message>) -> Option<Self>;
}

impl<M: Message + Default> Messages for Vec<M> {
    type Message = M;

    fn all(&self) -> Vec<&M> {
        self.iter().collect()
    }

    fn from_all(messages: Self) -> Option<Self> {
        Some(messages)
    }
}

impl<M: Message + Default> Messages for Option<M> {
    type Message = M;

    fn all(&self) -> Vec<&M> {
        self.iter().collect()
    }

    fn from_all(mut messages: Vec<M>) -> Option<Self> {
        let first = messages.pop();
        messages.is_empty().then_some(first)
    }
}

impl Messages for VolumeCapability {
    type Message = Self;

    fn all(&self) -> Vec<&Self> {
        vec![self]
    }

    fn from_all(mut messages: Vec<Self>) -> Option<Self> {
        messages.pop().filter(|_| messages.is_empty())
    }
}

pub(super) fn serialize<C: Messages, S: Serializer>(messages: &C, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(messages.all().into_iter().map(|message| STANDARD.encode(message.encode_to_vec())))
}

pub(super) fn deserialize<'de, C: Messages, D: Deserializer<'de>>(deserializer: D) -> Result<C, D::Error> {
    let decode = |text: String| {
        let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
        C::Message::decode(bytes.as_slice()).map_err(D::Error::custom)
    };
    let messages = Vec::<String>::deserialize(deserializer)?.into_iter().map(decode).collect::<Result<_, _>>()?;
    C::from_all(messages).ok_or_else(|| D::Error::custom("there are more or fewer messages than one"))
}
