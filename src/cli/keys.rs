//! The flags that set keys, so that a small setup needs no file. Pure.

use clap::Args;
use serde_json::{Value, json};

use crate::config::{FlagSetting, flags};

/// Flags of `run` and `check`. They take precedence over the environment and the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct KeyFlags {
    /// Enable a role, with its defaults if the file has no block for it; can be given several times. With a role no file is
    /// needed.
    #[arg(long = "role", value_name = "NAME")]
    pub roles: Vec<String>,
    /// The driver's socket (`csi.endpoint`).
    #[arg(long, value_name = "PATH")]
    pub csi_address: Option<String>,
    /// Deadline of one RPC to the driver, such as 1m (`csi.timeout`).
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// How much is logged, as the Go sidecars count: 2 is info, 4 debug, 5 trace (`telemetry.logs.level`).
    #[arg(long = "v", short = 'v', value_name = "NUMBER")]
    pub verbosity: Option<i64>,
}

impl KeyFlags {
    /// What they set. The values are checked with the rest of the configuration.
    pub fn settings(&self) -> Vec<FlagSetting> {
        let setting = |flag: &str, given: &str, key: &str, value: Value| FlagSetting {
            flag: format!("--{flag}={given}"),
            key: key.to_owned(),
            value,
        };
        let roles = self.roles.iter().map(|role| setting("role", role, &format!("roles.{role}"), json!({})));
        let address = self.csi_address.iter().map(|path| setting("csi-address", path, "csi.endpoint", json!(path)));
        let timeout = self.timeout.iter().map(|text| setting("timeout", text, "csi.timeout", json!(text)));
        let verbosity = self
            .verbosity
            .iter()
            .map(|number| setting("v", &number.to_string(), "telemetry.logs.level", json!(flags::level_of(*number))));
        roles.chain(address).chain(timeout).chain(verbosity).collect()
    }

    /// Whether they are a configuration without a file.
    pub(super) fn enable_a_role(&self) -> bool {
        !self.roles.is_empty()
    }
}

/// What the flags set, for people who look at a plan: a line each, and an empty one.
pub fn settings_text(settings: &[FlagSetting]) -> String {
    let width = settings.iter().map(|setting| setting.flag.len()).max().unwrap_or_default();
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let line = |it: &FlagSetting| format!("flag     {:<width$}  sets {}: {}\n", it.flag, it.key, shown(&it.value));
    let lines: String = settings.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("{lines}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_sets_its_key() {
        let flags = KeyFlags {
            roles: vec!["attacher".to_owned(), "resizer".to_owned()],
            csi_address: Some("/csi/csi.sock".to_owned()),
            timeout: Some("1m".to_owned()),
            verbosity: Some(5),
        };
        let told: Vec<String> =
            flags.settings().iter().map(|it| format!("{} {} {}", it.flag, it.key, it.value)).collect();
        let expected = [
            "--role=attacher roles.attacher {}",
            "--role=resizer roles.resizer {}",
            "--csi-address=/csi/csi.sock csi.endpoint \"/csi/csi.sock\"",
            "--timeout=1m csi.timeout \"1m\"",
            "--v=5 telemetry.logs.level \"info,csi_control_plane=trace\"",
        ];
        assert_eq!(told, expected);
        let (first, _) =
            settings_text(&flags.settings()).split_once('\n').map(|(a, b)| (a.to_owned(), b.len())).unwrap();
        assert_eq!(first, "flag     --role=attacher              sets roles.attacher: {}");
        assert_eq!(settings_text(&[]), "");
        assert!(flags.enable_a_role() && KeyFlags::default().settings().is_empty());
    }
}
