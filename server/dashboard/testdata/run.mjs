// Runs functions of the page's modules in Node: reads [[module, function, …arguments], …] as
// JSON and writes the list of results.
globalThis.document = { documentElement: { lang: 'en' } };
const calls = JSON.parse(await new Promise((resolve) => {
  let text = '';
  process.stdin.on('data', (chunk) => { text += chunk; }).on('end', () => resolve(text));
}));
const results = [];
for (const [module, name, ...args] of calls) {
  results.push((await import(new URL(`../static/js/${module}.js`, import.meta.url)))[name](...args) ?? null);
}
process.stdout.write(JSON.stringify(results));
