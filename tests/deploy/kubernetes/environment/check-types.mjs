// Reads custom resources, a JSON list, from standard input, and prints a list of mistakes for each: those of the
// published schema (types, patterns, required fields), and fields that the published TypeScript types do not have.
// The text of this file is run in the folder of the packages: node --input-type=module --eval TEXT. A kind without a
// package has the entry null.
import { readFileSync } from "node:fs";
import ts from "typescript";

const PACKAGES = {
  "gateway.networking.k8s.io": "@kubernetes-models/gateway-api",
  "monitoring.coreos.com": "@kubernetes-models/prometheus-operator",
};
const OPTIONS = {
  noEmit: true, strict: true, skipLibCheck: true, types: [], target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext,
};
const resources = JSON.parse(readFileSync(0, "utf-8"));
const modules = resources.map(({ apiVersion, kind }) => {
  const name = PACKAGES[apiVersion.split("/")[0]];
  return name && `${name}/${apiVersion}/${kind}`;
});
const found = modules.map((module) => (module ? [] : null));

// A literal of an interface type may have no other fields.
const files = new Map();
resources.forEach((resource, number) => {
  if (modules[number]) {
    const text = `import { I${resource.kind} as Type } from "${modules[number]}";\nexport const it: Type = `;
    files.set(`${process.cwd()}/resource-${number}.ts`, text + JSON.stringify(resource));
  }
});
const host = ts.createCompilerHost(OPTIONS);
const { fileExists, getSourceFile } = host;
host.fileExists = (name) => files.has(name) || fileExists(name);
host.getSourceFile = (name, ...rest) =>
  files.has(name) ? ts.createSourceFile(name, files.get(name), OPTIONS.target) : getSourceFile(name, ...rest);
for (const { file, messageText } of ts.getPreEmitDiagnostics(ts.createProgram([...files.keys()], OPTIONS, host))) {
  found[/resource-(\d+)\.ts$/.exec(file.fileName)[1]].push(ts.flattenDiagnosticMessageText(messageText, " "));
}

for (const [number, module] of modules.entries()) {
  if (module) {
    try {
      new (await import(module))[resources[number].kind](resources[number]).validate();
    } catch (error) {
      found[number].push(error.message);
    }
  }
}
console.log(JSON.stringify(found));
