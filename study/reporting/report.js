// What the page does beyond being read: draws its figures, sorts its tables, renews itself while a study runs.
"use strict";
document.documentElement.classList.add("scripted");

const dark = matchMedia("(prefers-color-scheme: dark)");
const DARK = JSON.parse(document.getElementById("dark").textContent);
const figures = [...document.querySelectorAll("figure")];

async function draw(figure) {
  const text = figure.querySelector("script").textContent;
  const spec = JSON.parse(dark.matches ? text.replace(/#[0-9a-f]{6}\b/g, (colour) => DARK[colour] ?? colour) : text);
  const place = figure.querySelector(".chart");
  spec.config.legend.columns = Math.max(2, Math.floor(place.clientWidth / 105));
  // A finger on a figure scrolls the page; pinching enlarges all of it.
  if (matchMedia("(pointer: coarse)").matches)
    for (const layer of [spec, ...spec.layer]) layer.params = layer.params?.filter((param) => param.bind !== "scales");
  const label = place.getAttribute("aria-label");
  const drawn = await vegaEmbed(place, spec, { actions: false, ast: false, renderer: "canvas", tooltip: { theme: dark.matches ? "dark" : "light" } });
  // Vega calls it a role of its own, with a label that says nothing.
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", label);
  place.removeAttribute("aria-roledescription");
  const picture = figure.querySelector("img");
  figure.querySelector(".svg").href = picture ? picture.src : await drawn.view.toImageURL("svg");
  figure.querySelector(".csv").href = URL.createObjectURL(new Blob([spec.data.values], { type: "text/csv" }));
}

const drawing = Promise.all(figures.map(draw));
drawing.then(() => document.documentElement.classList.add("drawn"));
dark.addEventListener("change", () => figures.forEach(draw));

// A heading of a sortable table is a button: it sorts by its column, and the other way round when it is pressed again.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const text = row.cells[column].textContent.trim();
    const number = parseFloat(text.replaceAll(",", ""));
    return text === "–" || text === "" ? null : Number.isNaN(number) ? text : number;
  };
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  headings.forEach((heading, column) => {
    // No element `button`: browsers leave those out where they repeat a heading on paper.
    const button = Object.assign(document.createElement("span"), { role: "button", tabIndex: 0 });
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      button.click();
    });
    button.addEventListener("click", () => {
      const direction = heading.ariaSort === "ascending" ? "descending" : "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.ariaSort = direction;
      const sign = direction === "ascending" ? 1 : -1;
      const rows = [...table.tBodies[0].rows].sort((one, other) => {
        const [a, b] = [key(one, column), key(other, column)];
        return a === null || b === null ? (a === null) - (b === null) : sign * order(a, b);
      });
      table.tBodies[0].append(...rows);
    });
  });
}

// A table that is wider than its place says so.
const measure = new ResizeObserver((entries) => {
  for (const { target } of entries) target.classList.toggle("wide", target.scrollWidth > target.clientWidth + 1);
});
document.querySelectorAll(".scroll").forEach((place) => measure.observe(place));

// A reload keeps the place that was scrolled to.
const renew = document.getElementById("renew");
if (renew) setInterval(() => renew.checked && !document.hidden && location.reload(), 60_000);
