// The numbers of a plot as a table, for those who do not see it and for those who want to copy them.

const plain = (text) => String(text ?? "").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
const FIGURES = "⁰¹²³⁴⁵⁶⁷⁸⁹", figures = new Intl.NumberFormat("en", { maximumSignificantDigits: 5 });

// As people write it, as everywhere on the page: −0.36, 50,000, 2.45×10⁻⁹.
function number(value) {
  if (typeof value !== "number") return plain(value);
  const size = Math.abs(value);
  if (!size || (size >= 1e-4 && size < 1e9)) return figures.format(value).replace("-", "−");
  const [mantissa, exponent] = value.toExponential(4).split("e");
  return `${figures.format(mantissa).replace("-", "−")}×10${exponent.replace("+", "").replace("-", "⁻").replace(/\d/g, (digit) => FIGURES[digit])}`;
}

function rowsOf(trace, layout) {
  if (trace.z) return trace.z.map((row, index) => [number(trace.y ? trace.y[index] : index + 1), ...row.map(number)]);
  const words = trace.hovertext || [];
  const errors = trace.error_y ? trace.error_y.array : [];
  return [...trace.x].map((x, index) => [
    plain(trace.name) || plain(layout.yaxis.title.text),
    plain(words[index]) || number(x),
    number(trace.y[index]) + (errors[index] ? ` ± ${number(errors[index])}` : ""),
  ]);
}

function headOf(figure) {
  const { xaxis, yaxis } = figure.layout;
  const matrix = figure.data.find((trace) => trace.z);
  if (!matrix) return ["series", plain(xaxis.title.text) || "of", plain(yaxis.title.text) || "value"];
  const across = matrix.x || matrix.z[0].map((_, index) => index + 1);
  return [`${plain(yaxis.title.text)} \\ ${plain(xaxis.title.text)}`, ...across.map(number)];
}

function rowOf(cells, tag, fields = {}) {
  const row = element("tr");
  row.append(...cells.map((cell) => element(tag, cell, fields)));
  return row;
}

// A row of one cell is the title of those below it.
function tableOf(head, rows) {
  const [table, top, body] = ["table", "thead", "tbody"].map((tag) => element(tag));
  top.append(rowOf(head, "th", { scope: "col" }));
  body.append(...rows.map((cells) => (cells.length < head.length ? rowOf(cells, "th", { scope: "colgroup", colSpan: head.length }) : rowOf(cells, "td"))));
  table.append(top, body);
  return table;
}

function withCopyButton(table, label) {
  const [whole, frame] = [element("div", "", { className: "rows" }), element("div", "", { className: "table", tabIndex: 0 })];
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", label);
  frame.append(table);
  whole.append(element("button", "Copy table", { type: "button", className: "copy" }), frame);
  return whole;
}

function fillNumbers(details, plot = details.closest("figure, section").querySelector(".plot")) {
  if (!details.open || details.querySelector("table")) return;
  const figure = figureOf(plot);
  const rows = figure.data.flatMap((trace) => rowsOf(trace, figure.layout));
  const finding = details.closest(".finding")?.querySelector("h3");  // several have a race of the same title
  const label = [details.querySelector("summary"), finding].filter(Boolean).map((part) => part.textContent).join(", ");
  details.append(withCopyButton(tableOf(headOf(figure), rows), label));
}
