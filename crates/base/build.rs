//! Compiles `proto/csi.proto` in pure Rust (no `protoc`) and makes every message that holds a secret print itself redacted.
//!
//! prost drops the specification's `csi_secret` field option, and derives a `Debug` that shows the secret. So the option is
//! read here from the descriptor pool: the messages that carry it get no derived `Debug`, and a generated one that hides
//! exactly those fields. A specification bump can thus never leak a new secret field.
//!
//! `proto/removed.proto` puts back what the specification has removed and older drivers still send.
//!
//! `proto/pluginregistration.proto` is compiled besides.

#![allow(clippy::disallowed_methods, reason = "cargo talks to a build script through the environment")]

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};
use prost_reflect::{DescriptorPool, MessageDescriptor};

/// From this crate's folder.
const FOLDER: &str = "../../proto";
const SPECIFICATION: &str = "csi.proto";
/// As errors name it.
const PROTO: &str = "proto/csi.proto";
/// What the specification has removed.
const REMOVED: &str = "removed.proto";
/// The kubelet's side of a plugin's registration: no secrets, and a server in each build.
const REGISTRATION: &str = "pluginregistration.proto";
const SECRET_OPTION: &str = "csi.v1.csi_secret";

fn main() -> Result<(), Box<dyn Error>> {
    for file in [SPECIFICATION, REMOVED, REGISTRATION] {
        println!("cargo::rerun-if-changed={FOLDER}/{file}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let mut compiler = protox::Compiler::new([FOLDER])?;
    compiler.include_imports(true).open_file(SPECIFICATION)?;
    let pool = compiler.descriptor_pool();

    let with_secrets: Vec<Redacted> = pool.all_messages().filter_map(|m| Redacted::of(&pool, &m)).collect();
    if with_secrets.is_empty() {
        return Err(format!("{PROTO}: no field carries {SECRET_OPTION}; redaction would be silently lost").into());
    }

    // The plain descriptor set, without the custom options, is what prost understands.
    let mut set = FileDescriptorSet::decode(compiler.encode_file_descriptor_set().as_slice())?;
    put_back_removed(&mut set)?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(std::env::var_os("CARGO_FEATURE_SERVER").is_some())
        .emit_rerun_if_changed(false)
        // The specification's comments hold indented text that rustdoc takes for doctests.
        .disable_comments(["."])
        .skip_debug(with_secrets.iter().map(|m| format!(".{}", m.full_name)))
        .compile_fds(set)?;

    let mut generated = String::new();
    for message in &with_secrets {
        message.write_debug(&mut generated)?;
    }
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("csi_redacted_debug.rs"), generated)?;
    compile_registration()
}

/// Messages, client and server of the kubelet's plugin registration.
fn compile_registration() -> Result<(), Box<dyn Error>> {
    let mut compiler = protox::Compiler::new([FOLDER])?;
    compiler.include_imports(true).open_file(REGISTRATION)?;
    let set = FileDescriptorSet::decode(compiler.encode_file_descriptor_set().as_slice())?;
    let builder = tonic_prost_build::configure().build_client(true).build_server(true);
    builder.emit_rerun_if_changed(false).disable_comments(["."]).compile_fds(set)?;
    Ok(())
}

/// Adds what older drivers still send to the messages and enumerations that the specification has removed it from.
fn put_back_removed(set: &mut FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    let mut compiler = protox::Compiler::new([FOLDER])?;
    compiler.open_file(REMOVED)?;
    let removed = FileDescriptorSet::decode(compiler.encode_file_descriptor_set().as_slice())?;
    for FileDescriptorProto { package, message_type, .. } in removed.file {
        let file = set.file.iter_mut().find(|file| file.package == package);
        let file = file.ok_or_else(|| format!("proto/{REMOVED}: {PROTO} is not of its package"))?;
        put_back_messages(&mut file.message_type, message_type)?;
    }
    Ok(())
}

fn put_back_messages(into: &mut Vec<DescriptorProto>, removed: Vec<DescriptorProto>) -> Result<(), Box<dyn Error>> {
    for message in removed {
        let Some(kept) = into.iter_mut().find(|kept| kept.name == message.name) else {
            into.push(message);
            continue;
        };
        for field in &message.field {
            let is_reserved =
                kept.reserved_range.iter().any(|range| (range.start()..range.end()).contains(&field.number()));
            free(is_reserved, message.name(), field.name(), field.number())?;
            kept.field.push(field.clone());
        }
        put_back_messages(&mut kept.nested_type, message.nested_type)?;
        put_back_values(&mut kept.enum_type, message.enum_type)?;
    }
    Ok(())
}

fn put_back_values(into: &mut [EnumDescriptorProto], removed: Vec<EnumDescriptorProto>) -> Result<(), Box<dyn Error>> {
    for values in removed {
        let kept = into.iter_mut().find(|kept| kept.name == values.name);
        let kept = kept.ok_or_else(|| format!("proto/{REMOVED}: {PROTO} has no enumeration {}", values.name()))?;
        // The language asks for a zero.
        for value in values.value.iter().filter(|value| value.number() != 0) {
            let is_reserved =
                kept.reserved_range.iter().any(|range| (range.start()..=range.end()).contains(&value.number()));
            free(is_reserved, values.name(), value.name(), value.number())?;
            kept.value.push(value.clone());
        }
    }
    Ok(())
}

/// Whether the number is still kept free for what had it.
fn free(is_reserved: bool, place: &str, name: &str, number: i32) -> Result<(), String> {
    let fault = || {
        format!(
            "proto/{REMOVED}: {place} of {PROTO} does not reserve {number}, which {name} had: read what has the number now"
        )
    };
    if is_reserved { Ok(()) } else { Err(fault()) }
}

/// A message with at least one secret field.
struct Redacted {
    full_name: String,
    rust_name: String,
    fields: Vec<(String, bool)>,
}

impl Redacted {
    fn of(pool: &DescriptorPool, message: &MessageDescriptor) -> Option<Self> {
        let option = pool.get_extension_by_name(SECRET_OPTION)?;
        let fields: Vec<(String, bool)> = message
            .fields()
            .map(|f| (f.name().to_owned(), f.options().get_extension(&option).as_bool() == Some(true)))
            .collect();
        fields.iter().any(|(_, secret)| *secret).then(|| Self {
            full_name: message.full_name().to_owned(),
            rust_name: message.name().to_owned(),
            fields,
        })
    }

    fn write_debug(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "impl std::fmt::Debug for {} {{", self.rust_name)?;
        writeln!(out, "    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {{")?;
        writeln!(out, "        f.debug_struct(\"{}\")", self.rust_name)?;
        for (name, secret) in &self.fields {
            let field = if name == "type" { "r#type" } else { name };
            if *secret {
                writeln!(out, "            .field(\"{name}\", &crate::redact::Stripped(self.{field}.len()))")?;
            } else {
                writeln!(out, "            .field(\"{name}\", &self.{field})")?;
            }
        }
        writeln!(out, "            .finish()\n    }}\n}}")
    }
}
