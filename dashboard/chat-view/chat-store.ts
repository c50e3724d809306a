import { withEnd, withStreamEvent, withThrown } from './answer-chunks.js';
import { chatSettings, settingsProblem, type AskedSettings, type TypedSettings } from './chat-settings.js';
import { requestBody } from './chat-request.js';
import { chatState, update } from './chat-state.js';
import {
  ask,
  askAgain,
  changeAnswer,
  chooseTurn,
  isRunning,
  runningAnswer,
  type Answer,
  withNotSent,
  type PageConversation,
  type ToolResult,
  type Turn,
} from './conversation.js';
import { changeLive, emptyConversation, showLive } from './conversation-keeper.js';
import { goOn, withRepeated } from './cut-answers.js';
import { droppedTurns, planDrop, tooLongQuestion, type ContextOfModel } from './dropped-turns.js';
import { EventStreamReader } from './event-stream.js';
import { rememberSettings } from './kept-preferences.js';
import { refusalOf } from './main-refusal.js';
import { endRunning, pageStays, startRunning, stopRunning } from './running-answers.js';

/** Relative to the origin of the page, so that the browser sends its cookie along. */
const CHAT_URL = '/v1/chat/completions';

export function changeSettings(change: Partial<TypedSettings>): void {
  const settings = { ...chatState().settings, ...change };
  update({ settings, refusal: '' });
  if (chatState().keeps) rememberSettings(settings);
}

/** Shows an empty conversation. The one before stays in the list; an answer under way goes on. */
export function newConversation(): void {
  showLive(emptyConversation());
}

/** Opens the editor of a question; null: closes it. */
export function editQuestion(id: number | null): void {
  update({ edited: id });
}

/** Opens the editor of the last question. */
export function editLast(): void {
  const last = chatState().conversation.turns.findLast(({ kind }) => kind === 'question');
  if (last !== undefined) editQuestion(last.id);
}

/** Sends a question. Returns false if the settings are wrong; the state then has the reason. */
export function askQuestion(text: string): boolean {
  const settings = askedSettings();
  if (settings !== null) begin(ask(chatState().conversation, text, settings));
  return settings !== null;
}

/** Sends the results of the calls in the last answer. A call that the settings force is not forced again. */
export function sendToolResults(results: readonly ToolResult[]): boolean {
  const settings = askedSettings();
  if (settings === null) return false;
  const toolChoice = settings.toolChoice === 'none' ? 'none' : 'auto';
  begin(ask(chatState().conversation, toolResultsText(results), { ...settings, toolChoice }, results));
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
  if (settings === null) return chatState().refusal;
  const { conversation } = chatState();
  const question = typed.trim() === '' ? tooLongQuestion(conversation) : null;
  const plan = await planDrop({ conversation, question, typed, settings, model });
  if ('problem' in plan) return plan.problem;
  const now = chatState().conversation;
  if (now.turns.at(-1)?.id !== conversation.turns.at(-1)?.id) return '';
  update({ refusal: '' });
  changeLive(withNotSent(now, plan.count), 'now');
  if (question !== null) askQuestionAgain(question.id, question.text, null);
  return '';
}

/** Sends all turns again that were left out of requests. */
export function sendAllTurns(): void {
  changeLive(withNotSent(chatState().conversation, 0), 'now');
}

/** Sends a question again, in a branch of its own. `given` null: uses the present settings. Returns whether it was sent. */
export function askQuestionAgain(questionId: number, text: string, given: AskedSettings | null): boolean {
  const settings = given ?? askedSettings();
  if (settings === null) return false;
  stopAnswer();
  begin(askAgain(chatState().conversation, questionId, text, settings));
  return true;
}

/** Asks for an answer that has ended early again with its seed and settings, and goes on from where it ended. */
export function goOnWith(answer: Answer): void {
  begin(goOn(chatState().conversation, answer.id));
}

/** Shows the branch of this turn. */
export function showBranch(turn: Turn): void {
  changeLive(chooseTurn(chatState().conversation, turn), 'now');
}

/** Stops the shown answer, in whichever tab it is under way. */
export function stopAnswer(): void {
  const answer = runningAnswer(chatState().conversation);
  if (answer !== null) stopRunning(answer.id);
}

/** The address and the body of a shown answer's request. */
export function requestOf(answer: Answer): { url: string; body: object } {
  return { url: location.origin + CHAT_URL, body: requestBody(chatState().conversation, answer) };
}

/** The settings with a seed; null: a field is wrong. */
export function askedSettings(): AskedSettings | null {
  const refusal = settingsProblem(chatState().settings);
  if (refusal !== '') {
    update({ refusal });
    return null;
  }
  const settings = chatSettings(chatState().settings);
  const seed = settings.seed ?? crypto.getRandomValues(new Uint32Array(1))[0] ?? 0;
  return { ...settings, seed, droppedTurns: droppedTurns(chatState().conversation) };
}

function begin(conversation: PageConversation): void {
  const answer = runningAnswer(conversation);
  update({ refusal: '' });
  if (answer === null) return;
  changeLive(conversation, 'now');
  void receive(conversation.id, answer, startRunning(answer.id, conversation.id));
}

/** Receives an answer. It never throws: an error is stored in the answer. */
async function receive(conversation: string, asked: Answer, signal: AbortSignal): Promise<void> {
  const change = (next: (answer: Answer) => Answer): void => changeRunning(conversation, asked.id, next);
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
    if (!signal.aborted) await pageStays();
    change((answer) => (signal.aborted ? withEnd(answer, true) : withThrown(answer, thrown)));
  }
  endRunning(asked.id);
}

/** Changes an answer under way, in whichever conversation. Where that was deleted, nothing happens. */
function changeRunning(conversation: string, answerId: number, change: (answer: Answer) => Answer): void {
  const live = chatState().live.get(conversation);
  if (live === undefined) return;
  const next = withRepeated(changeAnswer(live, answerId, change), answerId);
  const answer = next.all.find(({ id }) => id === answerId);
  const hasEnded = answer?.kind === 'answer' && !isRunning(answer);
  changeLive(next, hasEnded ? 'now' : 'later');
}
