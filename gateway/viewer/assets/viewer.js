"use strict";
// Copy buttons: data-copy is the id of the element whose text is copied; the result is shown in #copy-status.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // plain HTTP on another host has no clipboard
  }
}
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  const copied = await copyText(source.textContent);
  if (!copied) getSelection().selectAllChildren(source);
  document.getElementById("copy-status").textContent = copied ? "Copied." : "Selected; copy it with the keyboard.";
});
// The keys j and k follow the links to the next and the previous row, or page of a list.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  document.querySelector(`a[rel="${{ j: "next", k: "prev" }[event.key]}"]`)?.click();
});
