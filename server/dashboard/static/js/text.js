// The texts of the page in the language of the user.
import texts from './texts.js';

export const languages = { en: 'English', zh: '中文' };

const order = Object.keys(languages);
let at = Math.max(0, order.indexOf(document.documentElement.lang));

export const language = () => order[at];

export function setLanguage(lang) {
  at = Math.max(0, order.indexOf(lang));
  document.documentElement.lang = order[at];
  keep('lang', order[at]);
}

// t is the text of a key, with {name} replaced by values.name, and {name|one|many} by the word
// that goes with this number: one with 1, and else many. Chinese has one form.
export function t(key, values) {
  const both = texts[key];
  if (!both) throw new Error(`no text ${key}`);
  return both[at].replace(/\{(\w+)(?:\|([^|}]*)\|([^|}]*))?\}/g, (all, name, one, many) => {
    if (!values || !(name in values)) return all;
    if (many === undefined) return values[name];
    return String(values[name]) === '1' ? one : many;
  });
}

// maybe is the text of a key that may be missing, such as one that the server made.
export const maybe = (key, otherwise) => (texts[key] ? texts[key][at] : otherwise);

// keep keeps a preference of the user in this browser. Nothing secret may go there.
export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(`stint.${name}`);
    else localStorage.setItem(`stint.${name}`, value);
  } catch {
    // The browser keeps nothing: the choice lasts until the page is closed.
  }
}
