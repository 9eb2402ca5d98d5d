//! Runs the daemon in QEMU's user-space emulation, which logs each function that it executes.

use std::collections::BTreeSet;
use std::io::BufRead as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use object::{Object as _, ObjectSymbol as _, SymbolKind};
use tempfile::TempDir;

use crate::node;
use crate::order::{Functions, Group, script};

/// A part of the program.
struct Part {
    section: &'static str,
    /// Which scenarios execute it.
    is_of: fn(&str) -> bool,
    /// How many bytes of functions it has at most.
    most: u64,
}

/// The parts that lie first, one after the other.
const PARTS: [Part; 3] = [
    Part { section: ".text.node", is_of: |scenario| scenario.starts_with(node::NAME), most: 2_300_000 },
    Part { section: ".text.cluster", is_of: |scenario| scenario.contains("idle"), most: 2_900_000 },
    Part { section: ".text.work", is_of: |_| true, most: 2_000_000 },
];

/// A program that runs another one and logs what that executes.
pub(crate) struct Traced {
    binary: PathBuf,
    folder: TempDir,
}

impl Traced {
    /// `binary` has its symbols. Each process logs under the name of the scenario.
    pub(crate) fn new(binary: &Path) -> Self {
        let traced = Self { binary: binary.to_owned(), folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir(traced.logs()).unwrap();
        let (machine, logs) = (std::env::consts::ARCH, traced.logs());
        let run = format!(
            "#!/bin/sh\nexec qemu-{machine}-static -d in_asm -D {}/$(cat {})-$$ {} \"$@\"\n",
            logs.display(),
            traced.scenario().display(),
            traced.binary.display()
        );
        std::fs::write(traced.program(), run).unwrap();
        std::fs::set_permissions(traced.program(), std::fs::Permissions::from_mode(0o755)).unwrap();
        traced
    }

    /// A folder of its own.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn logs(&self) -> PathBuf {
        self.folder.path().join("logs")
    }

    fn scenario(&self) -> PathBuf {
        self.folder.path().join("scenario")
    }

    /// What is run from now on is of this scenario.
    pub(crate) fn begin(&self, scenario: &str) {
        std::fs::write(self.scenario(), scenario).unwrap();
    }

    /// What is to be run in the place of the binary.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// Writes the linker script.
    pub(crate) fn write(&self, to: &Path) {
        let bytes = std::fs::read(&self.binary).unwrap();
        let program = object::File::parse(&*bytes).unwrap();
        let functions = program.symbols().filter(|it| it.kind() == SymbolKind::Text && it.size() > 0);
        let functions = functions.filter_map(|it| Some((it.name().ok()?.to_owned(), it.size())));
        let groups = PARTS.map(|Part { section, is_of, most }| Group { section, executed: self.executed(is_of), most });
        let script = script(&Functions::new(functions), &groups);
        std::fs::write(to, script).unwrap();
    }

    /// The names of all functions that the program has executed in these scenarios.
    fn executed(&self, is_of: fn(&str) -> bool) -> BTreeSet<String> {
        let logs = std::fs::read_dir(self.logs()).unwrap().flatten();
        let mut executed = BTreeSet::new();
        for log in logs.filter(|entry| is_of(&entry.file_name().to_string_lossy())).map(|entry| entry.path()) {
            for line in std::io::BufReader::new(std::fs::File::open(log).unwrap()).split(b'\n') {
                let line = line.unwrap();
                let name = line.strip_prefix(b"IN: ").map(String::from_utf8_lossy);
                executed.extend(name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()));
            }
        }
        assert!(!executed.is_empty(), "{} has no symbols, or a scenario was not run", self.binary.display());
        executed
    }
}
