//! The comparison as a picture: a pair of bars for each figure, the longer one as long as there is room.

use std::fmt::Write as _;

use super::line::Line;

const WIDTH: f64 = 860.0;
const LABEL: f64 = 360.0;
const BAR: f64 = 360.0;
const ROW: f64 = 40.0;
const TOP: f64 = 64.0;

/// The picture as SVG. Its colours are told by a legend, and readable on light and dark pages.
pub(super) fn chart(lines: &[Line]) -> String {
    // Where both are nothing, a bar says nothing.
    let is_pair = |line: &&Line| !line.theirs.median.is_nan() && line.ours.median.max(line.theirs.median) > 0.0;
    let lines: Vec<&Line> = lines.iter().filter(is_pair).collect();
    let height = TOP + ROW * lines.len() as f64 + 10.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>csi-control-plane beside the Go sidecars</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <rect x=\"{LABEL}\" y=\"20\" width=\"12\" height=\"12\" fill=\"#9aa5b1\"/>\
         <text x=\"{}\" y=\"30\" fill=\"#1f2933\">Go sidecar</text>\n\
         <rect x=\"{}\" y=\"20\" width=\"12\" height=\"12\" fill=\"#d9480f\"/>\
         <text x=\"{}\" y=\"30\" fill=\"#1f2933\">csi-control-plane</text>\n\
         <text x=\"{LABEL}\" y=\"50\" fill=\"#52606d\">each pair to its own scale</text>\n",
        LABEL + 18.0,
        LABEL + 120.0,
        LABEL + 138.0,
    );
    for (index, line) in lines.iter().enumerate() {
        let top = TOP + ROW * index as f64;
        let most = line.ours.median.max(line.theirs.median);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#1f2933\">{}</text>",
            LABEL - 10.0,
            top + 19.0,
            escaped(&line.what)
        );
        for (offset, value, colour) in [(2.0, line.theirs.median, "#9aa5b1"), (17.0, line.ours.median, "#d9480f")] {
            let length = (value / most * BAR).max(1.0);
            let _ = writeln!(
                svg,
                "<rect x=\"{LABEL}\" y=\"{}\" width=\"{length:.1}\" height=\"13\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{}\" fill=\"#1f2933\">{}</text>",
                top + offset,
                LABEL + length + 6.0,
                top + offset + 11.0,
                line.unit.told(value)
            );
        }
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
