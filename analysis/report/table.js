"use strict";
// A click on a column's head sorts its table: rising, then falling. Rows without a number stay last.
const words = new Intl.Collator("en", { numeric: true });

function sort(head) {
  const row = head.parentElement, body = row.closest("table").tBodies[0];
  const place = [...row.cells].indexOf(head), rising = head.getAttribute("aria-sort") !== "ascending";
  const numbers = head.classList.contains("number");
  const key = (line) => {
    const cell = line.cells[place];
    if (numbers) return "order" in cell.dataset ? Number(cell.dataset.order) : null;
    return cell.textContent;
  };
  const keyed = [...body.rows].map((line) => [key(line), line]);
  keyed.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return (rising ? 1 : -1) * (numbers ? a - b : words.compare(a, b));
  });
  body.append(...keyed.map(([, line]) => line));
  for (const other of row.cells) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", rising ? "ascending" : "descending");
}

for (const button of document.querySelectorAll("th button"))
  button.addEventListener("click", () => sort(button.parentElement));

for (const button of document.querySelectorAll("button.copy")) {
  const code = button.nextElementSibling;
  button.hidden = false;
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(code); // what is left where the clipboard is not allowed
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    } catch { button.textContent = "Selected"; }
  });
}

// What is wider than the screen says so: a shadow where there is more.
function shade(scroll) {
  const right = scroll.scrollWidth - scroll.clientWidth - scroll.scrollLeft;
  scroll.parentElement.classList.toggle("before", scroll.scrollLeft > 1);
  scroll.parentElement.classList.toggle("after", right > 1);
  scroll.parentElement.classList.toggle("overflows", scroll.scrollWidth > scroll.clientWidth + 1);
}

const sizes = new ResizeObserver((entries) => { for (const entry of entries) shade(entry.target); });
for (const scroll of document.querySelectorAll(".scroll")) {
  sizes.observe(scroll);
  scroll.addEventListener("scroll", () => shade(scroll), { passive: true });
}

// What is folded is printed too, and folded again afterwards.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  for (const details of folded) details.open = true;
});
addEventListener("afterprint", () => { for (const details of folded) details.open = false; });
