// The copy button of a console block takes its commands, without "$ " and without output (theme: data-copy).

// Whether a command goes on in the next line: in a here-document, after \ or |, or inside quotes.
const goesOn = (command) => {
  const [, end] = /<<'(\w+)'\n/.exec(command) ?? []
  if (end) return !command.endsWith(`\n${end}\n`)
  const outside = command.replace(/'[^']*'|"(\\.|[^"\\])*"| #[^\n]*/g, "")
  return /[\\|]\n$/.test(outside) || /['"]/.test(outside)
}

for (const block of document.querySelectorAll(".language-console")) {
  let command = ""
  const commands = []
  for (const line of block.textContent.split("\n")) {
    if (command) command += `${line}\n`
    else if (line.startsWith("$ ")) command = `${line.slice(2)}\n`
    if (command && !goesOn(command)) {
      commands.push(command)
      command = ""
    }
  }
  block.dataset.copy = commands.join("")
}
