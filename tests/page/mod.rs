//! The status page in a real browser: `just page`.
//!
//! ```text
//! browser    a headless Chromium, spoken to in the DevTools protocol over a pipe
//! scene      a daemon's diagnostics with something to show
//! looks      light and dark, a desk and a telephone: everything readable, nothing cut off, nothing fetched elsewhere
//! life       news without a jump, a daemon that goes away and comes back, a reader without script
//! crowd      5 000 volumes and claims in progress at a real daemon
//! images     the pictures of the README, where somebody asks for them
//! ```

mod browser;
mod crowd;
mod images;
mod life;
mod looks;
mod scene;
