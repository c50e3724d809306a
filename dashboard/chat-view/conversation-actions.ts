import { saveFile } from '../elements/save-file.js';
import { chatState, offerUndo, update } from './chat-state.js';
import { askedSettings, changeSettings } from './chat-store.js';
import type { PageConversation } from './conversation.js';
import {
  bringBack,
  changeLive,
  dropLive,
  emptyConversation,
  keepAll,
  loadConversation,
  refreshHeads,
  showLive,
} from './conversation-keeper.js';
import { withCutAnswers } from './cut-answers.js';
import { deleteConversations, readHeads, searchTexts } from './kept-conversations.js';
import { foundPlace, headOf, keepingProblemWords, titleOf } from './kept-form.js';
import { rememberKeeping, rememberOpen, rememberSettings } from './kept-preferences.js';
import { showOpened } from './other-tabs.js';
import { stopRunning } from './running-answers.js';
import { readFile, savedFile, savedFileName, sizeProblem } from './saved-file.js';
import { tellTabs } from './tab-channel.js';

const TITLE_CHARACTERS = 200;

export async function openConversation(id: string): Promise<void> {
  await noted(async () => {
    const conversation = await loadConversation(id);
    if (conversation !== null) return showOpened(conversation);
    await refreshHeads();
    update({ note: 'This conversation was deleted in another tab.' });
  });
}

/** An empty title: the first question stands for it again. */
export async function renameConversation(id: string, title: string): Promise<void> {
  await noted(async () => {
    const conversation = await loadConversation(id);
    if (conversation === null) return;
    const changed = { ...conversation, title: title.trim().slice(0, TITLE_CHARACTERS), titledMs: Date.now() };
    changeLive(changed, 'now');
  });
}

/** Deletes the conversations in all tabs, and offers to bring them back. */
export async function deleteWithUndo(ids: readonly string[]): Promise<void> {
  await noted(async () => {
    const shown = chatState().conversation.id;
    const loaded = await Promise.all(ids.map(loadConversation));
    const deleted = loaded.filter((each) => each !== null).map((each) => withCutAnswers(each, new Set()));
    await removeEverywhere(ids);
    offerUndo(deletedWords(deleted), () => {
      for (const conversation of deleted) bringBack(conversation);
      const before = deleted.find(({ id }) => id === shown);
      if (before !== undefined) showLive(before);
    });
  });
}

function deletedWords(deleted: readonly PageConversation[]): string {
  const [first] = deleted;
  if (deleted.length !== 1 || first === undefined) return `Deleted ${deleted.length} conversations.`;
  return `Deleted “${titleOf(headOf(first, 0, 0))}”.`;
}

/** Stops the answers under way in the conversations, and removes these from the browser's storage and from all tabs. */
async function removeEverywhere(ids: readonly string[]): Promise<void> {
  const { runningHere, runningElsewhere, heads, keeps } = chatState();
  for (const { id, conversation } of [...runningHere, ...runningElsewhere]) {
    if (ids.includes(conversation)) stopRunning(id);
  }
  const kept = heads.map(({ id }) => id);
  try {
    await deleteConversations(
      ids.filter((id) => keeps || kept.includes(id)),
      Date.now(),
    );
    await refreshHeads();
  } catch (thrown) {
    // Conversations of this tab alone need no storage.
    if (ids.some((id) => kept.includes(id))) throw thrown;
  }
  for (const id of ids) dropLive(id);
  tellTabs({ kind: 'deleted', conversations: ids });
  // There may be room now.
  await keepAll();
}

/** Keeps the shown conversation, which another tab has deleted. */
export function keepDeleted(): void {
  update({ isDeletedElsewhere: false });
  bringBack(chatState().conversation);
}

/** Saves the shown branch of a conversation as a file that `odmoe chat` reads, too. */
export async function exportConversation(id: string): Promise<void> {
  await noted(async () => {
    const conversation = await loadConversation(id);
    if (conversation === null) return;
    saveFile(savedFileName(titleOf(headOf(conversation, 0, 0))), 'application/jsonl', savedFile(conversation));
  });
}

/** Reads a file that the page or `odmoe chat` has saved as a new conversation, and shows it. Returns whether it did; if not, the note says why. */
export async function importConversation(file: File): Promise<boolean> {
  let isImported = false;
  await noted(async () => {
    const problem = sizeProblem(file.name, file.size);
    const settings = askedSettings();
    if (settings === null) return update({ note: 'A setting is wrong: put it right, then import.' });
    const read = problem === '' ? readFile(file.name, await file.text(), emptyConversation(), settings) : problem;
    if (typeof read === 'string') return update({ note: read });
    changeLive(read.conversation, 'now');
    showLive(read.conversation);
    isImported = true;
    if (read.leftOut > 0) update({ note: leftOutWords(read.leftOut) });
    const { system } = chatState().settings;
    if (read.system === '' || read.system === system) return;
    changeSettings({ system: read.system });
    offerUndo('The system message of the file is now the one of the settings.', () => changeSettings({ system }));
  });
  return isImported;
}

function leftOutWords(count: number): string {
  const messages = count === 1 ? 'A system message' : `${count} system messages`;
  return `${messages} in the midst of the file ${count === 1 ? 'is' : 'are'} left out: the page holds one, before the conversation.`;
}

/** Whether conversations and settings are kept from now on. What was kept before stays until it is deleted. */
export function setKeeping(keeps: boolean): void {
  update({ keeps, keepingProblem: '' });
  rememberKeeping(keeps);
  rememberSettings(keeps ? chatState().settings : null);
  rememberOpen(keeps ? chatState().conversation.id : null);
  tellTabs({ kind: 'keeps', keeps });
  void keepAll();
}

/** The conversations with these words in their texts, each with the place: those kept, and those in this tab's memory. */
export async function searchConversations(words: string): Promise<Map<string, string>> {
  const found = await searchTexts(words).catch(() => new Map<string, string>());
  for (const { id, all } of chatState().live.values()) {
    const place = all.map(({ text }) => foundPlace(text, words)).find((each) => each !== null);
    if (place !== undefined) found.set(id, place);
  }
  return found;
}

/** The number of conversations that this browser keeps. Zero also where it cannot be read. */
export async function keptCount(): Promise<number> {
  try {
    return (await readHeads()).filter(({ deletedMs }) => deletedMs === null).length;
  } catch {
    return 0;
  }
}

/** Deletes all conversations and settings from this browser, without a way back. */
export async function forgetEverything(): Promise<void> {
  await refreshHeads();
  const { heads, live } = chatState();
  await removeEverywhere([...new Set([...heads.map(({ id }) => id), ...live.keys()])]);
  rememberSettings(null);
  rememberOpen(null);
}

/** Does it, and shows an error of the browser's storage. */
async function noted(work: () => Promise<void>): Promise<void> {
  update({ note: '' });
  try {
    await work();
  } catch (thrown) {
    update({ note: keepingProblemWords(thrown) });
  }
}
