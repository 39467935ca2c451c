// Figures as people read them.

const UNITS = [['ns', 1], ['µs', 1e3], ['ms', 1e6], ['s', 1e9], ['min', 60e9], ['h', 3600e9]];

/** A duration in nanoseconds, with three digits. */
export function duration(ns) {
  if (!Number.isFinite(ns)) return '–';
  const size = Math.abs(ns);
  let [unit, scale] = UNITS[0];
  for (const [name, each] of UNITS) if (size >= each) [unit, scale] = [name, each];
  const value = ns / scale;
  const digits = unit === 'ns' || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${unit}`;
}

/** A time on the axis, with as many digits as the distance between two marks needs. */
export function moment(ns, step) {
  if (ns === 0) return '0';
  const unit = Math.abs(ns) >= 1e9 || step >= 1e8 ? ['s', 1e9] : Math.abs(ns) >= 1e6 || step >= 1e5 ? ['ms', 1e6] : ['µs', 1e3];
  const digits = Math.max(0, Math.ceil(Math.log10(unit[1] / step) - 1e-9));
  return `${(ns / unit[1]).toFixed(Math.min(digits, 9))} ${unit[0]}`;
}

export function bytes(count) {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let step = 0;
  while (Math.abs(count) >= 1024 && step < names.length - 1) {
    count /= 1024;
    step += 1;
  }
  return `${count.toFixed(step === 0 || count >= 100 ? 0 : 1)} ${names[step]}`;
}

const GROUPED = new Intl.NumberFormat('en');
export const number = (value) => GROUPED.format(value);

export const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(part < whole && part > 0.995 * whole ? 1 : 0)} %` : '–');

/** The tail of a path or the name itself, at most that long. */
export function short(text, length) {
  if (text.length <= length) return text;
  const name = text.slice(text.lastIndexOf('/') + 1);
  return name.length <= length ? name : `${name.slice(0, Math.max(1, length - 1))}…`;
}

/** An element with attributes, texts and children. Text is never read as markup: names come from programs. */
export function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [property, text] of Object.entries(value)) made.style.setProperty(property, text);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}
