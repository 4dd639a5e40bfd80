// Elements without HTML text: everything that is data becomes a text node or an attribute
// that cannot run anything.

const forbidden = /^(on|style$|srcdoc$|innerHTML$)/i;

// h makes an element. props: class, testid, on (listeners by event), css (properties, set
// through the object model as the content security policy demands), value, checked,
// disabled, and attributes by name; null and false leave an attribute out.
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

// svg is h for SVG.
export function svg(tag, props, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), props, children);
}

// told are the attributes that are read by people.
const told = new Set(['title', 'aria-label', 'alt', 'placeholder']);

const direct = new Set(['value', 'checked', 'disabled', 'hidden', 'required']);

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'on') {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === 'css') {
      for (const [property, v] of Object.entries(value)) node.style.setProperty(property, v);
    } else if (name === 'class') node.setAttribute('class', value);
    else if (name === 'testid') node.dataset.testid = value;
    else if (direct.has(name) && name in node) node[name] = value;
    else if (forbidden.test(name)) throw new Error(`attribute ${name}`);
    else node.setAttribute(name, value === true ? '' : told.has(name) ? visible(value) : String(value));
  }
  add(node, children);
  return node;
}

// hidden matches what cannot be seen, or changes the order of what is around it: controls, characters
// without width and those that turn the direction of text.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]/g;

// visible is text with escapes for what is hidden in it, so that no key passes for another one.
export function visible(text) {
  return String(text).replace(hidden, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

// add appends nodes and texts; null and false are nothing, and arrays are flattened.
export function add(node, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
}

// put replaces what is in node.
export function put(node, ...children) {
  const fresh = document.createDocumentFragment();
  add(fresh, children);
  node.replaceChildren(fresh);
  return node;
}

// setText changes the text of node if it is another.
export function setText(node, text) {
  const next = visible(text);
  if (node.textContent !== next) node.textContent = next;
}
