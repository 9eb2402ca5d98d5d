//! The storage of a driver that really mounts: a folder with the state, and a folder or file for the content of each volume and
//! snapshot. Several processes may share it, on several nodes: each call has it for itself.
//!
//! Runs `mount`, `umount`, `losetup` and `cp`, as the calls would need `unsafe`: those of busybox will do.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use jiff::Timestamp;
use tonic::Code;

use super::lies::Answer as _;
use super::method::Method;
use super::profile::Profile;
use super::refusal::Refusal;
use super::rpc::Rpc;
use super::state::State;
use super::steps::{Step, steps};

/// The file in the staging folder of a device that names the device.
const DEVICE: &str = "device";
/// How often a free device is looked for: another process may take it first.
const TRIES: usize = 10;

/// The folder.
pub(super) struct Storage(PathBuf);

impl Storage {
    /// That of a driver, if it has one.
    pub(super) fn of(profile: &Profile) -> Option<Self> {
        profile.storage.clone().map(Self)
    }

    /// Decides and does: the call is answered when everything is as it says. What fails leaves the state as it was.
    pub(super) fn serve<R: Rpc>(
        &self,
        request: &R,
        state: &mut State,
        profile: &Profile,
        now: Timestamp,
    ) -> Result<R::Answer, Refusal> {
        let _lock = self.lock()?;
        let before = self.load()?;
        state.clone_from(&before);
        let done = request.serve(state, profile, now).and_then(|mut answer| {
            let here = profile.here().ok().map(|(id, _)| id.as_str());
            for step in steps(&before, state, here) {
                self.carry_out(step)?;
            }
            if let Some(volume) = request.volume().filter(|_| R::METHOD == Method::NodeGetVolumeStats) {
                answer.measured(used(&self.content(volume)?));
            }
            Ok(answer)
        });
        match done {
            Ok(answer) => {
                if *state != before {
                    self.save(state)?;
                }
                Ok(answer)
            }
            Err(refusal) => {
                *state = before;
                Err(refusal)
            }
        }
    }

    /// Forgets what is not mounted on the node `here`.
    pub(super) fn recover(&self, here: &str, state: &mut State) -> Result<(), Refusal> {
        let _lock = self.lock()?;
        *state = self.load()?;
        let table = fs::read_to_string("/proc/self/mountinfo").map_err(|error| cannot("read the mounts", &error))?;
        let mounted = mount_points(&table);
        if let Some(mounts) = state.mounts.get_mut(here) {
            let is_there = |at: &str| mounted.iter().any(|it| it == at);
            mounts.staged.retain(|(_, at), _| is_there(at) || device_at(at).is_some());
            mounts.targets.retain(|(_, at), _| is_there(at));
        }
        self.save(state)
    }

    fn lock(&self) -> Result<File, Refusal> {
        let lock = || {
            fs::create_dir_all(self.0.join("content"))?;
            let file = File::create(self.0.join("lock"))?;
            file.lock()?;
            Ok(file)
        };
        lock().map_err(|error| cannot(&format!("lock the storage in {}", self.0.display()), &error))
    }

    fn load(&self) -> Result<State, Refusal> {
        match fs::read_to_string(self.file()) {
            Ok(text) => serde_yaml::from_str(&text).map_err(|error| {
                Refusal::new(Code::Internal, format!("{} is no state of this driver: {error}", self.file().display()))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(State::default()),
            Err(error) => Err(cannot("read the state", &error)),
        }
    }

    fn save(&self, state: &State) -> Result<(), Refusal> {
        let text = serde_yaml::to_string(state)
            .map_err(|error| Refusal::new(Code::Internal, format!("the state cannot be written: {error}")))?;
        let part = self.0.join("state.part");
        fs::write(&part, text)
            .and_then(|()| fs::rename(&part, self.file()))
            .map_err(|error| cannot("write the state", &error))
    }

    fn file(&self) -> PathBuf {
        self.0.join("state.yaml")
    }

    /// Where the content of a volume or snapshot is. An ID is a name there, and no path.
    fn content(&self, id: &str) -> Result<PathBuf, Refusal> {
        if id.contains('/') || id.starts_with('.') {
            return Err(Refusal::invalid(format!("{id:?} cannot be the name of a file")));
        }
        Ok(self.0.join("content").join(id))
    }

    fn carry_out(&self, step: Step) -> Result<(), Refusal> {
        match step {
            Step::Make { volume, is_block, capacity, from } => {
                let path = self.content(&volume)?;
                match from {
                    Some(from) => self.copy(&from, &volume)?,
                    None if is_block => {}
                    None => fs::create_dir_all(&path).map_err(|error| cannot("make the volume's folder", &error))?,
                }
                if is_block { self.resize(&volume, capacity) } else { Ok(()) }
            }
            Step::Grow { volume, capacity } => self.resize(&volume, capacity),
            Step::Copy { from, to } => self.copy(&from, &to),
            Step::Remove { id } => {
                let path = self.content(&id)?;
                let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                gone(removed).map_err(|error| cannot(&format!("remove {}", path.display()), &error))
            }
            Step::Stage { volume, at, is_block } => {
                let content = self.content(&volume)?;
                fs::create_dir_all(&at).map_err(|error| cannot(&format!("make {at}"), &error))?;
                if is_block { attach(&content, &at) } else { bind(&content.display().to_string(), &at, false) }
            }
            Step::Unstage { at } => match device_at(&at) {
                Some(device) => {
                    run("losetup", &["-d", &device])?;
                    let file = Path::new(&at).join(DEVICE);
                    fs::remove_file(file).map_err(|error| cannot("forget the device", &error))
                }
                None => unmount(&at),
            },
            Step::Publish { staging, at, is_block, readonly } => {
                let path = Path::new(&at);
                let made = if is_block { File::create(path).map(drop) } else { fs::create_dir_all(path) };
                made.map_err(|error| cannot(&format!("make {at}"), &error))?;
                let source = if is_block { device_at(&staging) } else { Some(staging.clone()) };
                let source = source.ok_or_else(|| Refusal::precondition(format!("there is no device at {staging}")))?;
                bind(&source, &at, readonly)
            }
            Step::Unpublish { at } => {
                unmount(&at)?;
                // Never what is in it: that would be the volume's content.
                let path = Path::new(&at);
                let removed = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
                gone(removed).map_err(|error| cannot(&format!("remove {at}"), &error))
            }
        }
    }

    /// Copies content under another ID, all of it or nothing.
    fn copy(&self, from: &str, to: &str) -> Result<(), Refusal> {
        let (from, to, part) = (self.content(from)?, self.content(to)?, self.0.join("copy.part"));
        if to.exists() {
            return Ok(());
        }
        let text = |path: &Path| path.display().to_string();
        run("rm", &["-rf", &text(&part)])?;
        run("cp", &["-a", &text(&from), &text(&part)])?;
        fs::rename(&part, &to).map_err(|error| cannot("keep the copy", &error))
    }

    /// Gives a device's file this size, and tells the devices that there are.
    fn resize(&self, volume: &str, capacity: i64) -> Result<(), Refusal> {
        let path = self.content(volume)?;
        let size = u64::try_from(capacity).unwrap_or_default();
        let file = File::options().create(true).write(true).truncate(false).open(&path);
        file.and_then(|file| file.set_len(size)).map_err(|error| cannot("size the volume's file", &error))?;
        for device in devices_of(volume) {
            run("losetup", &["-c", &device])?;
        }
        Ok(())
    }
}

/// The mount points in a table of `/proc`, whose fifth field has blanks and backslashes in octal.
fn mount_points(table: &str) -> Vec<String> {
    let fields = table.lines().filter_map(|line| line.split(' ').nth(4));
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    fields.map(|field| escapes.iter().fold(field.to_owned(), |text, (from, to)| text.replace(from, to))).collect()
}

fn is_mounted(at: &str) -> Result<bool, Refusal> {
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(|error| cannot("read the mounts", &error))?;
    Ok(mount_points(&table).iter().any(|it| it == at))
}

fn bind(source: &str, at: &str, readonly: bool) -> Result<(), Refusal> {
    if !is_mounted(at)? {
        run("mount", &["-o", "bind", source, at])?;
    }
    if readonly {
        run("mount", &["-o", "remount,bind,ro", at])?;
    }
    Ok(())
}

fn unmount(at: &str) -> Result<(), Refusal> {
    while is_mounted(at)? {
        run("umount", &[at])?;
    }
    Ok(())
}

/// Gets a device for a file, and notes it at the staging path.
fn attach(file: &Path, at: &str) -> Result<(), Refusal> {
    if device_at(at).is_some() {
        return Ok(());
    }
    let path = file.display().to_string();
    for attempt in 1.. {
        let device = run("losetup", &["-f"])?.trim().to_owned();
        match run("losetup", &[&device, &path]) {
            Ok(_) => {
                return fs::write(Path::new(at).join(DEVICE), &device)
                    .map_err(|error| cannot("note the device", &error));
            }
            Err(refusal) if attempt == TRIES => return Err(refusal),
            Err(_) => {}
        }
    }
    Ok(())
}

/// The device that a staging path notes, if it is one still.
fn device_at(at: &str) -> Option<String> {
    let device = fs::read_to_string(Path::new(at).join(DEVICE)).ok()?;
    backing_file(device.strip_prefix("/dev/")?).is_some().then_some(device)
}

/// The devices of a volume's file. Its path may look otherwise from another process: its name is the same.
fn devices_of(volume: &str) -> Vec<String> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    let names = devices.flatten().filter_map(|device| device.file_name().into_string().ok());
    let is_of = |name: &String| {
        let file = backing_file(name).map(PathBuf::from);
        file.is_some_and(|file| file.ends_with(Path::new("content").join(volume)))
    };
    names.filter(is_of).map(|name| format!("/dev/{name}")).collect()
}

fn backing_file(device: &str) -> Option<String> {
    let path = Path::new("/sys/block").join(device).join("loop/backing_file");
    fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
}

/// The bytes of a volume that are used: the blocks of its files.
fn used(path: &Path) -> i64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    if !metadata.is_dir() {
        return i64::try_from(metadata.blocks() * 512).unwrap_or(i64::MAX);
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| used(&entry.path())).sum()
}

/// Runs a program, and gives what it prints.
fn run(program: &str, arguments: &[&str]) -> Result<String, Refusal> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| cannot(&format!("run {program}"), &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(Refusal::new(Code::Internal, format!("{program} {}: {}", arguments.join(" "), told.trim())))
}

fn cannot(what: &str, error: &io::Error) -> Refusal {
    Refusal::new(Code::Internal, format!("cannot {what}: {error}"))
}

/// What is not there need not be removed.
fn gone(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::super::state_tests::create;
    use super::*;
    use base::proto::volume_content_source::{Type as Source, VolumeSource};
    use base::proto::{CreateSnapshotRequest, DeleteVolumeRequest, VolumeContentSource};

    /// A process of the driver: what it is, and what it remembers.
    struct Process(Profile, State);

    impl Process {
        fn of(folder: &Path) -> Self {
            let profile = Profile { storage: Some(folder.to_owned()), ..Profile::default() };
            Self(profile, State::default())
        }

        fn serve<R: Rpc>(&mut self, request: &R) -> Result<R::Answer, Refusal> {
            Storage::of(&self.0).unwrap().serve(request, &mut self.1, &self.0, Timestamp::UNIX_EPOCH)
        }

        fn create(&mut self, name: &str, source: Option<Source>) -> String {
            let volume_content_source = source.map(|source| VolumeContentSource { r#type: Some(source) });
            self.serve(&base::proto::CreateVolumeRequest { volume_content_source, ..create(name, 1) })
                .unwrap()
                .volume
                .unwrap()
                .volume_id
        }
    }

    #[test]
    fn every_process_of_the_driver_knows_what_another_has_made_and_content_goes_with_its_volume() {
        let folder = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (Process::of(folder.path()), Process::of(folder.path()));
        let content = |id: &str| folder.path().join("content").join(id);
        let first = one.create("first", None);
        assert_eq!(other.create("first", None), first, "the same volume");
        fs::write(content(&first).join("file"), "precious").unwrap();

        let clone = other.create("clone", Some(Source::Volume(VolumeSource { volume_id: first.clone() })));
        let cut = CreateSnapshotRequest {
            name: "cut".to_owned(),
            source_volume_id: first.clone(),
            ..CreateSnapshotRequest::default()
        };
        let snapshot = one.serve(&cut).unwrap().snapshot.unwrap().snapshot_id;
        fs::write(content(&first).join("file"), "changed").unwrap();
        one.serve(&cut).unwrap();
        for copy in [&clone, &snapshot] {
            assert_eq!(fs::read_to_string(content(copy).join("file")).unwrap(), "precious", "{copy}");
        }
        for _ in 0..2 {
            other.serve(&DeleteVolumeRequest { volume_id: first.clone(), ..DeleteVolumeRequest::default() }).unwrap();
        }
        assert!(!content(&first).exists());
        assert_eq!(Process::of(folder.path()).create("clone-2", None), "volume-000004", "IDs are never given twice");
    }

    #[test]
    fn what_cannot_be_done_is_not_in_the_state() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Process::of(folder.path());
        fs::create_dir_all(folder.path().join("content")).unwrap();
        fs::write(folder.path().join("content/volume-000001"), "in the way").unwrap();
        let told = process.serve(&create("first", 1)).unwrap_err();
        assert!(told.code == Code::Internal && told.message.contains("make the volume's folder"), "{told}");
        assert_eq!(process.1, State::default());
        let storage = Storage::of(&process.0).unwrap();
        for path in ["../elsewhere", "a/b", ".."] {
            assert_eq!(storage.content(path).unwrap_err().code, Code::InvalidArgument, "{path}");
        }
    }

    #[test]
    fn mount_points_are_read_with_their_blanks() {
        let table = "1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 254:0 /x /a\\040b\\134c ro shared:1 - ext4 /dev/vda rw\n";
        assert_eq!(mount_points(table), ["/", "/a b\\c"]);
    }
}
