// Puts the page together: store, chat, views, and what the server tells about itself.

import * as api from './api.js';
import { Chat } from './chat.js';
import { Composer } from './composer.js';
import { pickedAnswer } from './conversation.js';
import { askKey } from './dialogs.js';
import { announce, byId, formatCount, h, meter, setMeter } from './dom.js';
import { LogView } from './log_view.js';
import { Drawer, makeTabs } from './panel.js';
import { SamplerPanel } from './sampler.js';
import { ServerPanel } from './server_panel.js';
import { loadSettings, parseTools, saveSettings } from './settings.js';
import { Sidebar } from './sidebar.js';
import { readSlot, writeSlot } from './slots.js';
import { Store } from './store.js';

/** From this share of the context on, the bar warns. */
const kContextHigh = 0.85;
const kLastSlot = 'kvasir.conversation';

async function main() {
  api.onKeyNeeded(askKey);
  const settings = loadSettings();
  const store = await Store.open();
  const chat = new Chat(store, settings);
  const composer = new Composer(chat, { form: byId('composer'), area: byId('input'), button: byId('send') });
  const log = { scroller: byId('log'), list: byId('messages'), toEnd: byId('to-end') };
  new LogView(chat, { ...log, compose: (text) => composer.set(text) });
  const server = wirePanels(chat, settings, composer);
  wireHeader(chat);
  wireKeys(chat, composer);
  if (!store.lasting) notice('This browser does not let the page keep conversations: they last until it is closed.');
  chat.addEventListener('unsaved', () => notice('The conversation could not be saved: this browser’s storage is full.'));
  window.addEventListener('pagehide', () => chat.saveRuns());
  const last = readSlot('local', kLastSlot);
  if (last) await chat.open(last);
  chat.addEventListener('conversation', () => writeSlot('local', kLastSlot, chat.conversation.id));
  await meetServer(chat, server);
}

function wirePanels(chat, settings, composer) {
  const sidebarDrawer = new Drawer('sidebar');
  const closeIfCovering = () => { if (byId('main').inert) sidebarDrawer.set(false); };
  const sidebar = new Sidebar(chat, byId('conversations'), closeIfCovering);
  byId('new-chat').addEventListener('click', () => {
    chat.create();
    closeIfCovering();
    composer.set('');
  });
  byId('export-all').addEventListener('click', () => sidebar.exportAll());

  const visible = () => !byId('panel').hidden && !byId('tab-server').hidden;
  const server = new ServerPanel(byId('facts'), byId('bars'), visible);
  const panel = new Drawer('panel', () => server.refresh());
  makeTabs(byId('tabs'), () => server.refresh());
  byId('model-chip').addEventListener('click', () => {
    byId('tab-for-server').click();
    panel.set(true);
  });
  wireSystem(chat, settings);
  wireTools(settings);
  server.sampler = new SamplerPanel(settings, byId('sampler'));
  return server;
}

function wireSystem(chat, settings) {
  const area = byId('system');
  const keep = byId('system-keep');
  const show = () => { area.value = chat.conversation.system; };
  area.addEventListener('change', () => chat.setSystem(area.value));
  area.addEventListener('input', () => { chat.conversation.system = area.value; });
  keep.addEventListener('click', () => {
    settings.system = area.value;
    saveSettings(settings);
    announce('Saved for new conversations.');
    keep.textContent = 'Saved';
    setTimeout(() => { keep.textContent = 'Use for new conversations'; }, 1600);
  });
  chat.addEventListener('conversation', show);
  show();
}

function wireTools(settings) {
  const area = byId('tools');
  area.value = settings.tools;
  area.addEventListener('input', () => {
    let wrong = '';
    try {
      parseTools(area.value);
    } catch (error) {
      wrong = error.message;
    }
    byId('tools-error').textContent = wrong;
    area.setAttribute('aria-invalid', String(wrong !== ''));
    settings.tools = area.value;
    saveSettings(settings);
  });
}

function wireHeader(chat) {
  const draw = () => {
    const title = chat.conversation.title || 'New conversation';
    byId('title').textContent = title;
    document.title = chat.conversation.title ? `${title} · Kvasir` : 'Kvasir';
    drawContext(chat);
  };
  for (const type of ['conversation', 'idle', 'model']) chat.addEventListener(type, draw);
  draw();
}

/** How much of the context the conversation fills, after the last answer that tells it. */
function drawContext(chat) {
  const root = byId('context');
  const answers = chat.conversation.messages.filter((m) => m.role === 'assistant').map(pickedAnswer);
  const known = answers.reverse().find((answer) => answer.usage);
  const size = chat.model && chat.model.context_window;
  root.hidden = !known || !size;
  if (root.hidden) return;
  const used = known.usage.prompt_tokens + known.usage.completion_tokens;
  const text = `${formatCount(used)} of ${formatCount(size)} tokens`;
  const bar = meter({ 'aria-label': 'Context used' });
  bar.classList.toggle('high', used > kContextHigh * size);
  setMeter(bar, used / size, text);
  root.replaceChildren(bar, text);
}

function wireKeys(chat, composer) {
  document.addEventListener('keydown', (event) => {
    const typing = /^(INPUT|TEXTAREA)$/.test(event.target.tagName);
    if (event.defaultPrevented || document.querySelector('dialog[open]')) return;
    if (event.key === 'Escape' && chat.run) {
      chat.stop();
    } else if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      composer.area.focus();
    }
  });
}

function notice(text) {
  const click = () => byId('notice').replaceChildren();
  const close = h('button', { type: 'button', class: 'button plain', text: 'Close', on: { click } });
  byId('notice').replaceChildren(...(text ? [h('p', { text }), close] : []));
}

/** Why a model cannot answer here, if it cannot. */
function whyNoChat(model) {
  if (model.embeddings) return 'This model turns texts into vectors and does not chat: POST /v1/embeddings answers.';
  return model.chat === false ? 'This model has no chat template and does not chat: POST /v1/completions answers.' : '';
}

async function meetServer(chat, server) {
  await api.untilReady((text) => notice(text));
  notice('');
  try {
    const [model, props] = await Promise.all([api.getModel(), api.getProps().catch(() => ({}))]);
    if (!model) return;
    chat.model = model;
    byId('model-name').textContent = model.id.split('/').pop();
    server.setModel(model, props);
    server.sampler.setDefaults(props);
    chat.closed = whyNoChat(model);
    if (chat.closed) chat.emit('conversation');
    chat.emit('model');
  } catch (error) {
    notice(error.message);
  }
}

main();
