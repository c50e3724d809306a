import { useEffect, useState } from 'preact/hooks';
import { withEnd, withStreamEvent, withThrown } from './answer-chunks.js';
import {
  chatSettings,
  DEFAULT_SETTINGS,
  settingsProblem,
  type AskedSettings,
  type TypedSettings,
} from './chat-settings.js';
import { requestBody } from './chat-request.js';
import {
  ask,
  askAgain,
  changeAnswer,
  EMPTY_PAGE_CONVERSATION,
  runningAnswer,
  withNotSent,
  type Answer,
  type PageConversation,
  type ToolResult,
} from './conversation.js';
import { droppedTurns, planDrop, tooLongQuestion, type ContextOfModel } from './dropped-turns.js';
import { EventStreamReader } from './event-stream.js';
import { refusalOf } from './main-refusal.js';

/** Relative to the origin of the page, so that the browser sends its cookie along. */
const CHAT_URL = '/v1/chat/completions';

export interface ChatState {
  conversation: PageConversation;
  settings: TypedSettings;
  /** The reason why the last question was not sent; empty: it was sent. */
  refusal: string;
  /** The question whose editor is to open; null: none. */
  editedId: number | null;
}

type Listener = () => void;

/** The state lives outside the view, so that an answer continues while another view is shown. */
let state: ChatState = {
  conversation: EMPTY_PAGE_CONVERSATION,
  settings: DEFAULT_SETTINGS,
  refusal: '',
  editedId: null,
};
let running: AbortController | null = null;
const listeners = new Set<Listener>();

function update(change: Partial<ChatState>): void {
  state = { ...state, ...change };
  for (const listener of [...listeners]) listener();
}

export function useChat(): ChatState {
  const [shown, setShown] = useState(state);
  useEffect(() => {
    const listener = (): void => setShown(state);
    listeners.add(listener);
    listener();
    return () => {
      listeners.delete(listener);
    };
  }, []);
  return shown;
}

export function changeSettings(change: Partial<TypedSettings>): void {
  update({ settings: { ...state.settings, ...change }, refusal: '' });
}

/** Clears the conversation. If an answer is running, it is stopped first. */
export function newConversation(): void {
  stopAnswer();
  // A late part of the stopped answer must not match another answer's id, so the ids go on.
  update({ conversation: { ...EMPTY_PAGE_CONVERSATION, nextId: state.conversation.nextId } });
}

/** Sends a question. Returns false if the settings are wrong; the state then has the reason. */
export function askQuestion(text: string): boolean {
  const settings = askedSettings();
  if (settings !== null) begin(ask(state.conversation, text, settings));
  return settings !== null;
}

/** Sends the results of the calls in the last answer. A call that the settings force is not forced again. */
export function sendToolResults(results: readonly ToolResult[]): boolean {
  const settings = askedSettings();
  if (settings === null) return false;
  const toolChoice = settings.toolChoice === 'none' ? 'none' : 'auto';
  begin(ask(state.conversation, toolResultsText(results), { ...settings, toolChoice }, results));
  return true;
}

/** The words that stand for the results where texts alone are shown. */
function toolResultsText(results: readonly ToolResult[]): string {
  return results.map(({ name, content }) => `${name}: ${content}`).join('\n');
}

/**
 * Leaves the oldest turns out of requests, as few as the next question needs (`typed`), or where nothing is typed and main refused the last
 * question as too long, that one, which is then asked again. Returns the reason why that cannot be; empty: it is done.
 */
export async function dropOldestTurns(typed: string, model: ContextOfModel): Promise<string> {
  const settings = askedSettings();
  if (settings === null) return state.refusal;
  const { conversation } = state;
  const question = typed.trim() === '' ? tooLongQuestion(conversation) : null;
  const plan = await planDrop({ conversation, question, typed, settings, model });
  if ('problem' in plan) return plan.problem;
  if (state.conversation.turns.at(-1)?.id !== conversation.turns.at(-1)?.id) return '';
  update({ conversation: withNotSent(state.conversation, plan.count), refusal: '' });
  if (question !== null) askQuestionAgain(question.id, question.text, null);
  return '';
}

/** Sends all turns again that were left out of requests. */
export function sendAllTurns(): void {
  update({ conversation: withNotSent(state.conversation, 0) });
}

/** Sends a question again and drops all later turns. `given` null: uses the present settings. Returns whether it was sent. */
export function askQuestionAgain(questionId: number, text: string, given: AskedSettings | null): boolean {
  const settings = given ?? askedSettings();
  if (settings === null) return false;
  stopAnswer();
  begin(askAgain(state.conversation, questionId, text, settings));
  return true;
}

/** Opens the editor of the last question. */
export function editLast(): void {
  const last = state.conversation.turns.findLast(({ kind }) => kind === 'question');
  if (last !== undefined) update({ editedId: last.id });
}

/** The editor of a question that was to open is open. */
export function editIsOpen(): void {
  update({ editedId: null });
}

export function stopAnswer(): void {
  running?.abort();
}

/** The address and the body of the answer's request. */
export function requestOf(answer: Answer): { url: string; body: object } {
  return { url: location.origin + CHAT_URL, body: requestBody(state.conversation, answer) };
}

/** The settings with a seed; null: a field is wrong. */
function askedSettings(): AskedSettings | null {
  const refusal = settingsProblem(state.settings);
  if (refusal !== '') {
    update({ refusal });
    return null;
  }
  const settings = chatSettings(state.settings);
  const seed = settings.seed ?? crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;
  return { ...settings, seed, droppedTurns: droppedTurns(state.conversation) };
}

function begin(conversation: PageConversation): void {
  const answer = runningAnswer(conversation);
  update({ conversation, refusal: '' });
  if (answer === null) return;
  running = new AbortController();
  void receive(answer, running.signal);
}

/** Receives an answer. It never throws: an error is stored in the answer. */
async function receive(asked: Answer, signal: AbortSignal): Promise<void> {
  const change = (next: (answer: Answer) => Answer): void =>
    update({ conversation: changeAnswer(state.conversation, asked.id, next) });
  try {
    const { url, body } = requestOf(asked);
    const headers = { 'content-type': 'application/json' };
    const reply = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body), signal });
    if (!reply.ok || reply.body === null) throw await refusalOf(reply);
    const reader = new EventStreamReader();
    const texts = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await texts.read();
      if (done) break;
      const events = reader.take(value);
      const nowMs = performance.now();
      change((answer) => events.reduce((next, event) => withStreamEvent(next, event, nowMs), answer));
    }
    change((answer) => withEnd(answer, false));
  } catch (thrown) {
    change((answer) => (signal.aborted ? withEnd(answer, true) : withThrown(answer, thrown)));
  }
}
