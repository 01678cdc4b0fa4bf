"""The style of the report: light and dark, narrow and wide, and on paper."""

CSS = """
:root {
  --paper: #ffffff; --ink: #1b1f24; --soft: #57606a; --rule: #d0d7de; --shade: #f4f6f8;
  --yes: #0b6b3a; --part: #8a5a00; --no: #b3261e;
  color-scheme: light dark;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --ink: #e6e9ec; --soft: #9aa4ae; --rule: #363d45; --shade: #1d2127;
    --yes: #5fd08f; --part: #f0b955; --no: #ff8f85;
  }
  /* Figures are drawn on white: light becomes dark, hues stay. */
  figure img { filter: invert(0.92) hue-rotate(180deg) brightness(1.25); }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
}
main { max-width: 70rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.8rem; line-height: 1.2; margin: 0.5rem 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.75rem; border-bottom: 1px solid var(--rule);
  padding-bottom: 0.3rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 0.5rem; }
p, li, figcaption { max-width: 46rem; }
li { margin-bottom: 0.4rem; }
sub { line-height: 0; }
code { font-size: 0.9em; background: var(--shade); padding: 0.1em 0.3em; border-radius: 3px; }
figure { margin: 1rem 0; }
figure img { max-width: 100%; height: auto; display: block; }
figcaption, .criterion, .paper { color: var(--soft); font-size: 0.875rem; }
figcaption { margin-top: 0.5rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.925rem; }
th { text-align: left; font-weight: 600; color: var(--soft); }
th, td { padding: 0.5rem 0.6rem; vertical-align: top; border-bottom: 1px solid var(--rule); }
.scroll { overflow-x: auto; }
.numbers { width: auto; font-variant-numeric: tabular-nums; }
.numbers td, .numbers th { padding: 0.25rem 0.7rem; white-space: nowrap; }
.claims td:nth-child(1) { white-space: nowrap; color: var(--soft); }
.claims td:nth-child(2) { min-width: 14rem; width: 32%; }
.claims td:nth-child(4) { white-space: nowrap; }
.criterion { margin: 0.35rem 0 0; }
.tag { display: block; font-size: 0.75rem; font-style: italic; }
.verdict { font-weight: 600; }
.holds, .yes::first-letter { color: var(--yes); }
.holds-partly { color: var(--part); }
.does-not-hold, .no::first-letter { color: var(--no); }
.not-measured { color: var(--soft); }
details { margin-top: 0.35rem; font-size: 0.875rem; }
details ul { list-style: none; padding-left: 0; margin: 0.4rem 0 0; }
details li { margin: 0; }
summary { cursor: pointer; color: var(--soft); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.35rem 1.25rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 44rem) {
  .claims thead { display: none; }
  .claims tr { display: block; padding: 0.75rem 0; border-bottom: 1px solid var(--rule); }
  .claims td, .claims td:nth-child(n) {
    display: block; width: auto; padding: 0.1rem 0; border: 0; white-space: normal;
  }
  .claims td::before { content: attr(data-label) ": "; color: var(--soft); font-size: 0.8rem; }
  dl { grid-template-columns: 1fr; gap: 0 0; }
  dd { margin-bottom: 0.5rem; }
}
@media print {
  body { font-size: 11px; }
  figure, tr { break-inside: avoid; }
}
"""
