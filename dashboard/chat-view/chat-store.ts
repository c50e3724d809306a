import { useEffect, useState } from 'preact/hooks';
import { withEnd, withFailure, withStreamEvent } from './answer-chunks.js';
import { DEFAULT_SETTINGS, type AskedSettings, type ChatSettings } from './chat-settings.js';
import {
  ask,
  askAgain,
  changeAnswer,
  EMPTY_CONVERSATION,
  requestBody,
  runningAnswer,
  type Answer,
  type Conversation,
} from './conversation.js';
import { EventStreamReader } from './event-stream.js';

/** Asked for at the origin that the page comes from; the browser sends its cookie along. */
const CHAT_URL = '/v1/chat/completions';

export interface ChatState {
  conversation: Conversation;
  settings: ChatSettings;
}

type Listener = () => void;

/** Beyond the view, so that an answer goes on while another view is shown. */
let state: ChatState = { conversation: EMPTY_CONVERSATION, settings: DEFAULT_SETTINGS };
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

export function changeSettings(change: Partial<ChatSettings>): void {
  update({ settings: { ...state.settings, ...change } });
}

/** Also where an answer runs: nothing of it comes any more. */
export function forgetConversation(): void {
  stopAnswer();
  // What still comes of the answer is not to find another with its id.
  update({ conversation: { ...EMPTY_CONVERSATION, nextId: state.conversation.nextId } });
}

export function askQuestion(text: string): void {
  begin(ask(state.conversation, text, askedSettings()));
}

/** `settings` null: those that are set now. What came after the question is forgotten. */
export function askQuestionAgain(questionId: number, text: string, settings: AskedSettings | null): void {
  stopAnswer();
  begin(askAgain(state.conversation, questionId, text, settings ?? askedSettings()));
}

export function stopAnswer(): void {
  running?.abort();
}

/** The address and body that the answer was asked for with. */
export function requestOf(answer: Answer): { url: string; body: object } {
  return { url: location.origin + CHAT_URL, body: requestBody(state.conversation, answer) };
}

function askedSettings(): AskedSettings {
  const { settings } = state;
  return { ...settings, seed: settings.seed ?? crypto.getRandomValues(new Uint32Array(1))[0] ?? 0 };
}

function begin(conversation: Conversation): void {
  const answer = runningAnswer(conversation);
  update({ conversation });
  if (answer === null) return;
  running = new AbortController();
  void receive(answer, running.signal);
}

/** Never throws: what goes wrong stands in the answer. */
async function receive(asked: Answer, signal: AbortSignal): Promise<void> {
  const change = (next: (answer: Answer) => Answer): void =>
    update({ conversation: changeAnswer(state.conversation, asked.id, next) });
  try {
    const { url, body } = requestOf(asked);
    const headers = { 'content-type': 'application/json' };
    const reply = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body), signal });
    if (!reply.ok || reply.body === null) throw new Error(await refusalOf(reply));
    const reader = new EventStreamReader();
    const pieces = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await pieces.read();
      if (done) break;
      const events = reader.take(value);
      const nowMs = performance.now();
      change((answer) => events.reduce((next, event) => withStreamEvent(next, event, nowMs), answer));
    }
    change((answer) => withEnd(answer, false));
  } catch (thrown) {
    const message = thrown instanceof Error ? thrown.message : String(thrown);
    change((answer) => (signal.aborted ? withEnd(answer, true) : withFailure(answer, message)));
  }
}

/** Main's own words where it says some. */
async function refusalOf(reply: Response): Promise<string> {
  const status = `Main refused with HTTP status ${reply.status}.`;
  try {
    const { error } = (await reply.json()) as { error?: { message?: string } };
    return error?.message ?? status;
  } catch {
    return status;
  }
}
