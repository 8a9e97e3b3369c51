// The drawers on both sides and the tabs of the settings. On narrow screens an open drawer covers
// the page: the rest is inert, Escape and the scrim close it, the focus returns.

import { byId } from './dom.js';
import { readSlot, writeSlot } from './slots.js';

const kNarrow = window.matchMedia('(max-width: 60rem)');

export class Drawer {
  /** @param name 'sidebar' or 'panel': the element's id; its toggle is `{name}-toggle` */
  constructor(name, onChange = () => {}) {
    this.name = name;
    this.node = byId(name);
    this.toggle = byId(`${name}-toggle`);
    this.onChange = onChange;
    this.toggle.addEventListener('click', () => this.set(!this.open));
    byId(`${name}-close`).addEventListener('click', () => this.set(false));
    byId('scrim').addEventListener('click', () => { if (kNarrow.matches) this.set(false); });
    this.node.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape' || !kNarrow.matches) return;
      event.stopPropagation();
      this.set(false);
    });
    kNarrow.addEventListener('change', () => this.set(!kNarrow.matches && this.wanted(), false));
    this.set(!kNarrow.matches && this.wanted(), false);
  }

  /** What wide screens show at first: the list, not the settings. */
  wanted() {
    return (readSlot('local', `kvasir.${this.name}`) || (this.name === 'sidebar' ? 'open' : 'closed')) === 'open';
  }

  set(open, byHand = true) {
    this.open = open;
    this.node.hidden = !open;
    this.toggle.setAttribute('aria-expanded', String(open));
    document.body.classList.toggle(`with-${this.name}`, open);
    const covers = open && kNarrow.matches;
    byId('main').inert = covers;
    byId('scrim').hidden = !covers;
    if (byHand && !kNarrow.matches) writeSlot('local', `kvasir.${this.name}`, open ? 'open' : 'closed');
    if (byHand) (open ? this.node.querySelector('.drawer-first') : this.toggle).focus();
    this.onChange();
  }
}

/** Makes a tablist of the element: arrows move, the panels are named by aria-controls. */
export function makeTabs(root, onChange) {
  const tabs = [...root.querySelectorAll('[role=tab]')];
  const select = (chosen, focus = true) => {
    for (const tab of tabs) {
      tab.setAttribute('aria-selected', String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
      byId(tab.getAttribute('aria-controls')).hidden = tab !== chosen;
    }
    if (focus) chosen.focus();
    onChange(chosen);
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener('click', () => select(tab));
    tab.addEventListener('keydown', (event) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1 }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      select(tabs[(to + tabs.length) % tabs.length]);
    });
  });
  select(tabs[0], false);
}
