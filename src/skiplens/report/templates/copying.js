// Copying a table or a piece of code, also where the browser has no clipboard for this page.

// A number as people write it becomes one that a spreadsheet reads.
function asTyped(text) {
  const [, sign, mantissa, power] = text.match(/^(−?)([\d.,]*?)(?:×?10([⁻⁰¹²³⁴-⁹]+))?$/) || [];
  if (mantissa === undefined || !text) return text;
  const exponent = [...(power || "")].map((figure) => (figure === "⁻" ? "-" : FIGURES.indexOf(figure))).join("");
  return `${sign && "-"}${mantissa.replaceAll(",", "") || "1"}${exponent && `e${exponent}`}`;
}

function tableText(table) {
  const rows = [...table.rows].filter((row) => !row.hidden);
  return rows.map((row) => [...row.cells].map((cell) => asTyped(cell.textContent)).join("\t")).join("\n");
}

function copyBySelection(text) {
  const area = element("textarea", "", { value: text, className: "clipboard", readOnly: true });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

async function copy(button, text) {
  const label = button.dataset.label || (button.dataset.label = button.textContent);
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    done = copyBySelection(text);
    button.focus();
  }
  button.textContent = done ? "Copied" : "Could not copy";
  say(button.textContent);
  setTimeout(() => { button.textContent = label; }, 1500);
}
