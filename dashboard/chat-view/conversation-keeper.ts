import { chatState, update } from './chat-state.js';
import { EMPTY_PAGE_CONVERSATION, mergeTurns, type PageConversation } from './conversation.js';
import { readConversation, readHeads, readTurns, writeConversation } from './kept-conversations.js';
import { keepingProblemWords } from './kept-form.js';
import { rememberOpen } from './kept-preferences.js';
import { tellTabs } from './tab-channel.js';

/** Pause between two writes of an answer under way, and how many times as long as the last write it is at least. */
const PAUSE_MS = 500;
const PAUSE_WRITES = 10;

/** The turns that are not kept yet, by conversation. An empty set: what is kept beside the turns is not. */
const unkept = new Map<string, Set<number>>();
/** Conversations that come back after their deletion. */
const broughtBack = new Set<string>();
let timer: number | undefined;
let isWriting = false;
/** The turns that are being written. */
let underWay: { id: string; turns: ReadonlySet<number> } | null = null;
let mustWriteAgain = false;
let lastWriteMs = 0;

/** A number that no other tab draws. */
function drawnId(): number {
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2));
  return (high & 0xfffff) * 0x1_0000_0000 + low + 1;
}

export function emptyConversation(): PageConversation {
  return { ...EMPTY_PAGE_CONVERSATION, id: `${Date.now()}-${drawnId()}`, nextId: drawnId() };
}

/** Shows the conversation. The one that was shown stays in memory as long as it must. */
export function showLive(conversation: PageConversation): void {
  update({ conversation, isDeletedElsewhere: false, edited: null, refusal: '' });
  if (conversation.all.length > 0) replaceLive(conversation);
  rememberOpen(chatState().keeps ? conversation.id : null);
  forgetKept();
}

/** Puts a new state of the conversation in place of the one in this tab's memory. */
export function replaceLive(next: PageConversation): void {
  const { live, conversation } = chatState();
  update({
    live: new Map(live).set(next.id, next),
    ...(conversation.id === next.id && { conversation: next }),
  });
}

/** As `replaceLive`, and keeps what has changed: now, or a little later together with later changes. */
export function changeLive(next: PageConversation, when: 'now' | 'later'): void {
  const known = new Set(chatState().live.get(next.id)?.all);
  replaceLive(next);
  keep(
    next.id,
    next.all.filter((turn) => !known.has(turn)).map(({ id }) => id),
    when,
  );
}

/** Keeps a conversation whole, also where it was deleted. */
export function bringBack(conversation: PageConversation): void {
  replaceLive(conversation);
  broughtBack.add(conversation.id);
  keep(
    conversation.id,
    conversation.all.map(({ id }) => id),
    'now',
  );
}

function keep(id: string, turns: readonly number[], when: 'now' | 'later'): void {
  unkept.set(id, new Set([...(unkept.get(id) ?? []), ...turns]));
  if (when === 'now') return void keepAll();
  timer ??= window.setTimeout(() => void keepAll(), Math.max(PAUSE_MS, PAUSE_WRITES * lastWriteMs));
}

export function hasUnkept(): boolean {
  return unkept.size > 0;
}

/** Writes what is not kept yet, unless the user wants nothing kept. */
export async function keepAll(): Promise<void> {
  window.clearTimeout(timer);
  timer = undefined;
  if (!chatState().keeps) return;
  if (isWriting) return void (mustWriteAgain = true);
  isWriting = true;
  for (const id of [...unkept.keys()]) if (!(await keepOne(id))) break;
  isWriting = false;
  underWay = null;
  forgetKept();
  const again = mustWriteAgain;
  mustWriteAgain = false;
  if (again) void keepAll();
}

/** Returns whether others may be written, too. */
async function keepOne(id: string): Promise<boolean> {
  const conversation = chatState().live.get(id);
  const turns = unkept.get(id) ?? new Set();
  unkept.delete(id);
  underWay = { id, turns };
  if (conversation === undefined || conversation.all.length === 0) return true;
  const beginMs = performance.now();
  try {
    const outcome = await writeConversation(conversation, turns, Date.now(), broughtBack.has(id));
    lastWriteMs = performance.now() - beginMs;
    if (outcome === 'deleted') {
      markDeleted(id);
      return true;
    }
    if (outcome === 'full') return keepFailed(id, turns, keepingProblemWords('full'));
    broughtBack.delete(id);
    if (chatState().keepingProblem !== '') update({ keepingProblem: '' });
    tellTabs({ kind: 'changed', conversation: id, turns: [...turns] });
    await refreshHeads();
    return true;
  } catch (thrown) {
    return keepFailed(id, turns, keepingProblemWords(thrown));
  }
}

function keepFailed(id: string, turns: ReadonlySet<number>, keepingProblem: string): false {
  unkept.set(id, new Set([...turns, ...(unkept.get(id) ?? [])]));
  update({ keepingProblem });
  return false;
}

/** The conversations that have to be kept yet, each with those of its turns alone. */
export function unkeptConversations(): PageConversation[] {
  const { live, keeps } = chatState();
  if (!keeps) return [];
  const ids = new Set([...unkept.keys(), ...(underWay === null ? [] : [underWay.id])]);
  return [...ids].flatMap((id) => {
    const conversation = live.get(id);
    if (conversation === undefined) return [];
    const all = conversation.all.filter(
      (turn) => unkept.get(id)?.has(turn.id) || (underWay?.id === id && underWay.turns.has(turn.id)),
    );
    return [{ ...conversation, all, turns: [] }];
  });
}

/** Takes in what the load of the page before could not keep any more. */
export async function takeInLeft(left: PageConversation): Promise<void> {
  const known = (await loadConversation(left.id)) ?? { ...left, all: [], nextId: drawnId() };
  changeLive(mergeTurns({ ...known, chosen: { ...known.chosen, ...left.chosen } }, left.all), 'now');
}

/** Notes that another tab has deleted the conversation. It stays in this tab's memory where it is shown. */
export function markDeleted(id: string): void {
  unkept.delete(id);
  const { conversation, live } = chatState();
  if (conversation.id === id) return update({ isDeletedElsewhere: conversation.all.length > 0 });
  const left = new Map(live);
  left.delete(id);
  update({ live: left });
}

/** Drops a conversation from this tab's memory. */
export function dropLive(id: string): void {
  unkept.delete(id);
  const live = new Map(chatState().live);
  live.delete(id);
  update({ live });
  if (chatState().conversation.id === id) showLive(emptyConversation());
}

/** Drops conversations from memory that are kept, not shown, and have no answer under way here. */
function forgetKept(): void {
  const { live, conversation, runningHere } = chatState();
  const needed = [...live].filter(
    ([id]) => id === conversation.id || unkept.has(id) || runningHere.some((each) => each.conversation === id),
  );
  if (needed.length < live.size) update({ live: new Map(needed) });
}

export async function refreshHeads(): Promise<void> {
  update({ heads: await readHeads() });
}

/** The conversation from memory or from the browser's storage; null: it is in neither. */
export async function loadConversation(id: string): Promise<PageConversation | null> {
  return chatState().live.get(id) ?? (await readConversation(id, drawnId()));
}

/** Takes in what another tab has written. */
export async function takeIn(id: string, turns: readonly number[]): Promise<void> {
  await refreshHeads();
  if (!chatState().live.has(id)) return;
  const others = await readTurns(id, turns);
  const mine = chatState().live.get(id);
  const head = chatState().heads.find((each) => each.id === id);
  if (mine === undefined) return;
  const merged = mergeTurns(mine, others);
  const { title, titledMs } = head !== undefined && head.titledMs > mine.titledMs ? head : mine;
  replaceLive({ ...merged, title, titledMs });
}
