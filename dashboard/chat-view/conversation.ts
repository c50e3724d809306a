import type { AskedSettings } from './chat-settings.js';

/** A token of the answer; its text is a part of the content. */
export interface AnswerToken {
  text: string;
  /** Natural logarithm of its probability. */
  logprob: number;
  alternatives: { text: string; logprob: number }[];
}

export interface AnswerUsage {
  promptTokens: number;
  cachedTokens: number;
  answerTokens: number;
}

/** A call of a tool by the model. */
export interface ToolCall {
  id: string;
  name: string;
  /** JSON as the model wrote it; it may be cut off. */
  arguments: string;
}

/** What a tool said to a call. */
export interface ToolResult {
  callId: string;
  name: string;
  content: string;
}

/** The place of a turn in the tree of its conversation. */
interface PlacedTurn {
  id: number;
  /** The turn that it follows; null: it is a beginning. */
  parentId: number | null;
  /** Counts up through the conversation: of two turns with one parent the later one has the higher number. */
  order: number;
  /** Counts the changes of the turn. Of two copies the one with the higher number is the newer one. */
  revision: number;
}

export interface Question extends PlacedTurn {
  kind: 'question';
  text: string;
  /** Results of the calls in the answer before it, which are sent in place of the text. Absent: the text is sent. */
  toolResults?: readonly ToolResult[];
}

export interface Answer extends PlacedTurn {
  kind: 'answer';
  /** "cut": a reload of the page ended it. */
  state: 'waiting' | 'streaming' | 'done' | 'stopped' | 'failed' | 'cut';
  text: string;
  reasoning: string;
  /** Their texts together are `text`, unless a part of `text` has no listed tokens. */
  tokens: readonly AnswerToken[];
  toolCalls: readonly ToolCall[];
  /** Main's progress on the prompt; empty: none. */
  progress: string;
  /** The error; empty: none. */
  error: string;
  /** The field of the request that main refuses, and main's code for the error; empty: none. */
  errorField: string;
  errorCode: string;
  finishReason: string;
  fingerprint: string;
  /** The settings of its request. */
  settings: AskedSettings;
  usage: AnswerUsage | null;
  /** Times of the first and the latest delta, on the page's clock, in ms. */
  firstMs: number | null;
  lastMs: number | null;
  /** The cut answer that this one repeats, as long as it has not come as far; null: it repeats none. */
  came: Answer | null;
  /** It comes from a file, so that nothing is known of its request. */
  isImported: boolean;
}

export type Turn = Question | Answer;

/** A tree of turns. A question that is edited, and an answer that is asked again, get a sibling. */
export interface PageConversation {
  /** Empty: it has no name in the browser's storage yet. */
  id: string;
  /** The user's own title; empty: the first question stands for it. */
  title: string;
  /** Time of the title, in ms since 1970. Of two titles the later one counts. */
  titledMs: number;
  /** All turns of all branches. */
  all: readonly Turn[];
  /** The shown child of a turn, by the turn's id (FIRST_TURN: the shown beginning); elsewhere the latest child is shown. */
  chosen: Readonly<Record<string, number>>;
  /** The ids of turns that are shown, but are left out of requests. */
  notSent: readonly number[];
  /** The shown branch, from its beginning. */
  turns: readonly Turn[];
  /** Each tab of the browser begins at a number of its own, so that no two tabs give one id twice. */
  nextId: number;
}

const FIRST_TURN = 'first';

export const EMPTY_PAGE_CONVERSATION: PageConversation = {
  id: '',
  title: '',
  titledMs: 0,
  all: [],
  chosen: {},
  notSent: [],
  turns: [],
  nextId: 1,
};

/** Adds a question behind the shown branch, and its answer, which is waiting. */
export function ask(
  conversation: PageConversation,
  text: string,
  settings: AskedSettings,
  toolResults?: readonly ToolResult[],
): PageConversation {
  return askBehind(conversation, conversation.turns.at(-1)?.id ?? null, text, settings, toolResults);
}

/**
 * Asks a question of the shown branch again: with the same text its answer gets a sibling, with another one the question does. Results of
 * tools stay.
 */
export function askAgain(
  conversation: PageConversation,
  questionId: number,
  text: string,
  settings: AskedSettings,
): PageConversation {
  const question = conversation.all.find(({ id }) => id === questionId);
  if (question?.kind !== 'question') return conversation;
  if (question.text !== text) {
    return askBehind(conversation, question.parentId, text, settings, question.toolResults);
  }
  return withTurn(conversation, waitingAnswer(conversation, questionId, settings));
}

function askBehind(
  conversation: PageConversation,
  parentId: number | null,
  text: string,
  settings: AskedSettings,
  toolResults?: readonly ToolResult[],
): PageConversation {
  const asked = withQuestion(conversation, parentId, text, toolResults);
  return withTurn(asked, waitingAnswer(asked, conversation.nextId, settings));
}

/** Adds a question as the shown child of `parentId`. Its id is the conversation's `nextId`. */
export function withQuestion(
  conversation: PageConversation,
  parentId: number | null,
  text: string,
  toolResults?: readonly ToolResult[],
): PageConversation {
  const place = { id: conversation.nextId, parentId, order: nextOrder(conversation), revision: 0 };
  const results = toolResults === undefined ? {} : { toolResults };
  return withTurn(conversation, { kind: 'question', ...place, text, ...results });
}

/** The answer that `withTurn` adds for a question (or a beginning, null). */
export function waitingAnswer(
  conversation: PageConversation,
  parentId: number | null,
  settings: AskedSettings,
): Answer {
  return {
    kind: 'answer',
    id: conversation.nextId,
    parentId,
    order: nextOrder(conversation),
    revision: 0,
    state: 'waiting',
    text: '',
    reasoning: '',
    tokens: [],
    toolCalls: [],
    progress: '',
    error: '',
    errorField: '',
    errorCode: '',
    finishReason: '',
    fingerprint: '',
    settings,
    usage: null,
    firstMs: null,
    lastMs: null,
    came: null,
    isImported: false,
  };
}

/** Adds a turn, which has the conversation's next id, and shows it. */
export function withTurn(conversation: PageConversation, turn: Turn): PageConversation {
  const chosen = { ...conversation.chosen, [placeOf(turn)]: turn.id };
  return withAll({ ...conversation, chosen, nextId: turn.id + 1 }, [...conversation.all, turn]);
}

/** Replaces the turns; the shown branch follows. */
export function withAll(conversation: PageConversation, all: readonly Turn[]): PageConversation {
  return { ...conversation, all, turns: shownTurns(all, conversation.chosen) };
}

function nextOrder({ all }: PageConversation): number {
  return all.reduce((order, turn) => Math.max(order, turn.order), 0) + 1;
}

function placeOf({ parentId }: Pick<Turn, 'parentId'>): string {
  return parentId === null ? FIRST_TURN : String(parentId);
}

function shownTurns(all: readonly Turn[], chosen: PageConversation['chosen']): Turn[] {
  const children = new Map<string, Turn[]>();
  for (const turn of all) children.set(placeOf(turn), [...(children.get(placeOf(turn)) ?? []), turn]);
  const shown: Turn[] = [];
  // A turn that follows itself could only come from a damaged storage.
  for (let place = FIRST_TURN; shown.length < all.length;) {
    const here = children.get(place) ?? [];
    const turn = here.find(({ id }) => id === chosen[place]) ?? here.toSorted(byOrder).at(-1);
    if (turn === undefined) break;
    shown.push(turn);
    place = String(turn.id);
  }
  return shown;
}

function byOrder(left: Turn, right: Turn): number {
  return left.order - right.order || left.id - right.id;
}

/** The turns with the same parent as this one, which is among them, in the order in which they were asked. */
export function siblingsOf({ all }: PageConversation, turn: Turn): Turn[] {
  return all.filter(({ parentId, kind }) => parentId === turn.parentId && kind === turn.kind).sort(byOrder);
}

/** Shows the branch of this turn, among those of its siblings. */
export function chooseTurn(conversation: PageConversation, turn: Turn): PageConversation {
  const chosen = { ...conversation.chosen, [placeOf(turn)]: turn.id };
  return withAll({ ...conversation, chosen }, conversation.all);
}

/** Takes in the turns of another copy of the conversation: all turns stay, and of two copies of a turn the newer one. The shown branch is `mine`. */
export function mergeTurns(mine: PageConversation, others: readonly Turn[]): PageConversation {
  const known = new Map(mine.all.map((turn) => [turn.id, turn]));
  const newer = others.filter((turn) => turn.revision > (known.get(turn.id)?.revision ?? -1));
  if (newer.length === 0) return mine;
  for (const turn of newer) known.set(turn.id, turn);
  return withAll(mine, [...known.values()]);
}

export function questionOf(conversation: PageConversation, answerId: number): Question | null {
  const index = conversation.turns.findIndex(({ id }) => id === answerId);
  const turn = conversation.turns[index - 1];
  return turn?.kind === 'question' ? turn : null;
}

export function changeAnswer(
  conversation: PageConversation,
  answerId: number,
  change: (answer: Answer) => Answer,
): PageConversation {
  const all = conversation.all.map((turn) => {
    if (turn.kind !== 'answer' || turn.id !== answerId) return turn;
    const next = change(turn);
    return next === turn ? turn : { ...next, revision: turn.revision + 1 };
  });
  return withAll(conversation, all);
}

export function runningAnswer({ turns }: PageConversation): Answer | null {
  const last = turns.at(-1);
  return last?.kind === 'answer' && isRunning(last) ? last : null;
}

export function isRunning({ state }: Answer): boolean {
  return state === 'waiting' || state === 'streaming';
}

/** Leaves the first `count` shown turns out of requests, and sends all others. */
export function withNotSent(conversation: PageConversation, count: number): PageConversation {
  return { ...conversation, notSent: conversation.turns.slice(0, count).map(({ id }) => id) };
}
