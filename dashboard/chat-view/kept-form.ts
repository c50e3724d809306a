import { formatBytes } from '../../shared/base/text/units.js';
import { chatSettings, DEFAULT_SETTINGS } from './chat-settings.js';
import {
  EMPTY_PAGE_CONVERSATION,
  waitingAnswer,
  withAll,
  type Answer,
  type AnswerToken,
  type PageConversation,
  type Turn,
} from './conversation.js';

/** Most bytes of conversations that a browser keeps, as `turnBytes` counts them: some thousand long answers with the likelihoods of their tokens. */
export const KEPT_BYTES_LIMIT = 256_000_000;

const OPENING_CHARACTERS = 120;

/** What a list shows of a conversation, and what is kept of it beside its turns. */
export interface KeptHead {
  id: string;
  title: string;
  titledMs: number;
  /** The begin of its first question. */
  opening: string;
  /** In ms since 1970. */
  changedMs: number;
  /** Time of its deletion: the head alone stays for a while, so that no other tab brings the conversation back. null: it is there. */
  deletedMs: number | null;
  bytes: number;
  chosen: Record<string, number>;
  notSent: number[];
}

/** A turn as it is kept, without the tokens, so that a search reads little. */
export interface KeptTurn {
  conversation: string;
  id: number;
  bytes: number;
  turn: Turn;
}

export interface KeptTokens {
  conversation: string;
  id: number;
  tokens: readonly AnswerToken[];
}

const ALONE = 'What is newest here is in this tab alone';
const MAKE_ROOM = 'export it, or delete other conversations';

/** Why the browser keeps no more, and what to do. `thrown`: the browser's error, or "full" where KEPT_BYTES_LIMIT has no room. */
export function keepingProblemWords(thrown: unknown): string {
  if (thrown === 'full') {
    return `The page keeps at most ${formatBytes(KEPT_BYTES_LIMIT)} of conversations, and these have no more room. ${ALONE}: ${MAKE_ROOM}.`;
  }
  const error = thrown instanceof Error ? thrown : null;
  if (error?.name === 'QuotaExceededError') {
    return `The browser has no more room for conversations. ${ALONE}: ${MAKE_ROOM}, or make room on the disk.`;
  }
  const reason = error === null ? String(thrown) : error.message;
  return `The browser lets the page keep no conversations (${reason}). ${ALONE}: export what you want to keep.`;
}

export function headOf(conversation: PageConversation, changedMs: number, bytes: number): KeptHead {
  const { id, title, titledMs, chosen, notSent } = conversation;
  const opening = openingOf(conversation);
  return {
    id,
    title,
    titledMs,
    opening,
    changedMs,
    deletedMs: null,
    bytes,
    chosen: { ...chosen },
    notSent: [...notSent],
  };
}

function openingOf({ turns }: PageConversation): string {
  const first = turns.find(({ kind }) => kind === 'question');
  const words = (first?.text ?? '')
    .slice(0, 4 * OPENING_CHARACTERS)
    .replace(/\s+/g, ' ')
    .trim();
  return words.length > OPENING_CHARACTERS ? `${words.slice(0, OPENING_CHARACTERS)}…` : words;
}

/** The user's title, or the first question. */
export function titleOf({ title, opening }: Pick<KeptHead, 'title' | 'opening'>): string {
  if (title !== '') return title;
  return opening === '' ? 'Without a question' : opening;
}

/** Takes what is newer of two heads of one conversation: this tab's shown branch, and the later title. */
export function mergedHead(mine: KeptHead, kept: KeptHead | undefined): KeptHead {
  if (kept === undefined) return mine;
  const chosen = { ...kept.chosen, ...mine.chosen };
  const { title, titledMs } = kept.titledMs > mine.titledMs ? kept : mine;
  return { ...mine, title, titledMs, chosen };
}

export function keptTurn(conversation: string, turn: Turn): { kept: KeptTurn; tokens: KeptTokens | null } {
  const { id } = turn;
  const bytes = turnBytes(turn);
  if (turn.kind !== 'answer') return { kept: { conversation, id, bytes, turn }, tokens: null };
  return {
    kept: { conversation, id, bytes, turn: { ...turn, tokens: [] } },
    tokens: { conversation, id, tokens: turn.tokens },
  };
}

/** About the bytes that a turn takes: two a character, and what stands around texts and numbers. */
export function turnBytes(turn: Turn): number {
  const RECORD_BYTES = 600;
  if (turn.kind !== 'answer') return RECORD_BYTES + 2 * turn.text.length;
  const { text, reasoning, tokens, came } = turn;
  return (
    RECORD_BYTES + 2 * (text.length + reasoning.length) + tokensBytes(tokens) + (came === null ? 0 : turnBytes(came))
  );
}

function tokensBytes(tokens: readonly AnswerToken[]): number {
  const ENTRY_BYTES = 40;
  let bytes = 0;
  for (const { text, alternatives } of tokens) {
    bytes += ENTRY_BYTES + 2 * text.length;
    for (const other of alternatives) bytes += ENTRY_BYTES + 2 * other.text.length;
  }
  return bytes;
}

/** The conversation from its records. `nextId`: the tab's own first id. Records that are damaged are left out. */
export function keptConversation(
  { id, title, titledMs, chosen, notSent }: KeptHead,
  turns: readonly KeptTurn[],
  tokens: readonly KeptTokens[],
  nextId: number,
): PageConversation {
  const empty: PageConversation = { ...EMPTY_PAGE_CONVERSATION, id, title, titledMs, chosen, notSent, nextId };
  return withAll(empty, restoredTurns(turns, tokens));
}

/** The turns of the records. What an earlier version of the page did not keep has its default. */
export function restoredTurns(turns: readonly KeptTurn[], tokens: readonly KeptTokens[]): Turn[] {
  const tokensOf = new Map(tokens.map((each) => [each.id, each.tokens]));
  return turns.flatMap(({ id, turn }): Turn[] => {
    // Another version of the page may have kept another form.
    const { kind, text } = turn as Partial<Turn>;
    if (typeof text !== 'string') return [];
    if (kind === 'question') return [turn];
    if (kind !== 'answer') return [];
    return [{ ...withDefaults(turn as Answer), tokens: tokensOf.get(id) ?? [] }];
  });
}

function withDefaults(answer: Answer): Answer {
  const settings = { ...chatSettings(DEFAULT_SETTINGS), ...answer.settings };
  return { ...waitingAnswer(EMPTY_PAGE_CONVERSATION, answer.parentId, settings), ...answer, settings };
}

/** The latest first. `kept`: the heads in the browser's storage. `live`: conversations in this tab's memory, of which some are not kept. */
export function listedHeads(kept: readonly KeptHead[], live: Iterable<PageConversation>, nowMs: number): KeptHead[] {
  const heads = new Map(kept.filter(({ deletedMs }) => deletedMs === null).map((head) => [head.id, head]));
  for (const conversation of live) {
    if (conversation.all.length === 0) continue;
    const known = heads.get(conversation.id);
    const head = headOf(conversation, known?.changedMs ?? nowMs, known?.bytes ?? bytesOf(conversation));
    heads.set(conversation.id, mergedHead(head, known));
  }
  return [...heads.values()].sort((left, right) => right.changedMs - left.changedMs);
}

function bytesOf({ all }: PageConversation): number {
  return all.reduce((sum, turn) => sum + turnBytes(turn), 0);
}

const FOUND_BEFORE = 30;
const FOUND_AFTER = 70;

/** The place where the text has the words, with some of the text around it; null: it has them not. Capitals do not count. */
export function foundPlace(text: string, words: string): string | null {
  const at = text.toLowerCase().indexOf(words.toLowerCase());
  if (at < 0) return null;
  const begin = Math.max(0, at - FOUND_BEFORE);
  const end = at + words.length + FOUND_AFTER;
  const around = text.slice(begin, end).replace(/\s+/g, ' ').trim();
  return `${begin > 0 ? '…' : ''}${around}${end < text.length ? '…' : ''}`;
}
