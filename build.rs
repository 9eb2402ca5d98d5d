//! Compiles `proto/csi.proto` in pure Rust (no `protoc`) and makes every message that holds a secret print itself redacted.
//!
//! prost drops the specification's `csi_secret` field option, and derives a `Debug` that shows the secret. So the option is
//! read here from the descriptor pool: the messages that carry it get no derived `Debug`, and a generated one that hides
//! exactly those fields. A specification bump can thus never leak a new secret field.
//!
//! `proto/pluginregistration.proto` is compiled besides, the commit is put into the binary, and the image's binary is put in order.

#![allow(clippy::disallowed_methods, reason = "cargo talks to a build script through the environment")]

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, MessageDescriptor};

const PROTO: &str = "proto/csi.proto";
/// The kubelet's side of a plugin's registration: no secrets, and a server in each build.
const REGISTRATION: &str = "pluginregistration.proto";
const SECRET_OPTION: &str = "csi.v1.csi_secret";

/// Puts first in the image's binary what the daemon executes: written by `just order`.
const ORDER: &str = ".cargo/order.ld";

/// Holds the commit in an archive that git has made, and the same placeholder in each checkout.
const ARCHIVED: &str = "commit.txt";
/// The variable by which a build is told its commit. The daemon ignores it.
const TOLD: &str = "CSI_CONTROL_PLANE_COMMIT";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={ARCHIVED}");
    println!("cargo::rerun-if-env-changed={TOLD}");
    println!("cargo::rustc-env=BUILD_COMMIT={}", commit()?);
    order_functions()?;
    println!("cargo::rerun-if-changed={PROTO}");
    println!("cargo::rerun-if-changed=proto/{REGISTRATION}");
    println!("cargo::rerun-if-changed=build.rs");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_file("csi.proto")?;
    let pool = compiler.descriptor_pool();

    let with_secrets: Vec<Redacted> = pool.all_messages().filter_map(|m| Redacted::of(&pool, &m)).collect();
    if with_secrets.is_empty() {
        return Err(format!("{PROTO}: no field carries {SECRET_OPTION}; redaction would be silently lost").into());
    }

    // The plain descriptor set, without the custom options, is what prost understands.
    let set = prost_reflect::prost_types::FileDescriptorSet::decode(compiler.encode_file_descriptor_set().as_slice())?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(std::env::var_os("CARGO_FEATURE_SANDBOX").is_some())
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

/// Links the image's binary with the linker script. A program that nobody measures needs no order, and its linker may know no scripts.
fn order_functions() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={ORDER}");
    if std::env::var("CARGO_CFG_TARGET_ENV")? == "musl" && std::env::var("PROFILE")? == "release" {
        let script = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join(ORDER);
        println!("cargo::rustc-link-arg-bins=-Wl,--script={}", script.display());
    }
    Ok(())
}

/// The commit that is built: told by an image's or a release's build, else written by `git archive`. A checkout is not asked
/// for it, because each new commit would then compile the crate again.
fn commit() -> Result<String, Box<dyn Error>> {
    let is_commit = |text: &str| (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    let told = std::env::var(TOLD).unwrap_or_default();
    if !told.is_empty() {
        let fault = format!("{TOLD}={told:?}: expected a commit, at most 64 letters, digits and signs without a space");
        return if is_commit(&told) { Ok(told) } else { Err(fault.into()) };
    }
    let archived = std::fs::read_to_string(ARCHIVED).unwrap_or_default();
    let archived = archived.trim();
    let is_written = is_commit(archived) && !archived.starts_with('$');
    Ok(if is_written { archived } else { "unknown" }.to_owned())
}

/// Messages, client and server of the kubelet's plugin registration.
fn compile_registration() -> Result<(), Box<dyn Error>> {
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_file(REGISTRATION)?;
    let set = prost_reflect::prost_types::FileDescriptorSet::decode(compiler.encode_file_descriptor_set().as_slice())?;
    let builder = tonic_prost_build::configure().build_client(true).build_server(true);
    builder.emit_rerun_if_changed(false).disable_comments(["."]).compile_fds(set)?;
    Ok(())
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
                writeln!(out, "            .field(\"{name}\", &crate::csi::redact::Stripped(self.{field}.len()))")?;
            } else {
                writeln!(out, "            .field(\"{name}\", &self.{field})")?;
            }
        }
        writeln!(out, "            .finish()\n    }}\n}}")
    }
}
