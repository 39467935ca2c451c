// Colours of the canvas, from the style sheet, which knows dark and light.

import { CATEGORIES } from './model.js';
import { PRIORITIES } from './kinds.js';

const NAMES = ['ground', 'panel', 'line', 'text', 'muted', 'faint', 'accent', 'gold'];

export function theme() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(`--${name}`).trim();
  const colours = Object.fromEntries(NAMES.map((name) => [name, of(name)]));
  colours.categories = CATEGORIES.map((name) => of(`is-${name}`));
  colours.inks = CATEGORIES.map((name) => of(`on-${name}`) || of('on-slice'));
  colours.priorities = PRIORITIES.map((name) => of(`priority-${name}`));
  colours.font = of('font');
  return colours;
}
