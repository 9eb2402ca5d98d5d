//! The pictures of the README: `just page-images` writes them where `PAGE_IMAGES` says.

use std::path::PathBuf;

use crate::page::browser::{Browser, DESK, PHONE, Screen};
use crate::page::scene::Scene;

/// A README that loads slowly is not read.
const MOST_BYTES: usize = 200_000;

#[tokio::test]
async fn the_pictures_of_the_readme_are_small() {
    #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
    let folder = std::env::var_os("PAGE_IMAGES").map(PathBuf::from);
    let (scene, mut browser) = (Scene::busy().await, Browser::start().await);
    let (desk, phone) = (Screen { width: 1080, height: 860, ..DESK }, PHONE);
    for (name, screen, scheme) in [
        ("status-light", desk, "light"),
        ("status-dark", desk, "dark"),
        ("status-phone-light", phone, "light"),
        ("status-phone-dark", phone, "dark"),
    ] {
        browser.look_on(screen, scheme).await;
        browser.open(&scene.url()).await;
        let picture = browser.picture().await;
        assert!(picture.starts_with(b"\x89PNG") && picture.len() < MOST_BYTES, "{name}: {} bytes", picture.len());
        if let Some(folder) = &folder {
            std::fs::write(folder.join(format!("{name}.png")), picture).unwrap();
        }
    }
}
