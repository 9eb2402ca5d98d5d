//! Puts the commit into the binary, and the functions of the image's binary in order.

#![allow(clippy::disallowed_methods, reason = "cargo talks to a build script through the environment")]

use std::error::Error;
use std::path::PathBuf;

/// Puts first in the image's binary what the daemon executes: written by `just order`.
const ORDER: &str = ".cargo/order.ld";

/// Holds the commit in an archive that git has made, and the same placeholder in each checkout.
const ARCHIVED: &str = "commit.txt";
/// The variable by which a build is told its commit. The daemon ignores it.
const TOLD: &str = "CSI_CONTROL_PLANE_COMMIT";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ARCHIVED}");
    println!("cargo::rerun-if-env-changed={TOLD}");
    println!("cargo::rustc-env=BUILD_COMMIT={}", commit()?);
    order_functions()
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
