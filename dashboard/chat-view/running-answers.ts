import { chatState, update } from './chat-state.js';
import { tellTabs, THIS_TAB } from './tab-channel.js';

/** A page that the browser is about to leave does not last so long. */
const LEAVING_MS = 5000;
let leavingSinceMs = -Infinity;

const controllers = new Map<number, AbortController>();

/** Notes that this tab asks for the answer, and tells the other tabs. The signal says when to stop. */
export function startRunning(id: number, conversation: string): AbortSignal {
  const controller = new AbortController();
  controllers.set(id, controller);
  update({ runningHere: [...chatState().runningHere, { id, conversation }] });
  tellRunning();
  return controller.signal;
}

export function endRunning(answer: number): void {
  controllers.delete(answer);
  update({ runningHere: chatState().runningHere.filter(({ id }) => id !== answer) });
  tellRunning();
}

/** Stops an answer that this tab asks for; another tab's one is stopped by that tab. */
export function stopRunning(answer: number): void {
  const controller = controllers.get(answer);
  if (controller === undefined) tellTabs({ kind: 'stop', answer });
  else controller.abort();
}

export function stopRunningHere(answer: number): void {
  controllers.get(answer)?.abort();
}

export function tellRunning(): void {
  tellTabs({ kind: 'runs', tab: THIS_TAB, answers: chatState().runningHere });
}

/** Notes that the browser is about to leave the page, or to load it again. */
export function noteLeaving(): void {
  leavingSinceMs = performance.now();
}

/**
 * Resolves when the page certainly stays; at once where nothing speaks against it. Browsers break connections before they leave a page, and
 * an answer must not count as failed for that.
 */
export async function pageStays(): Promise<void> {
  if (performance.now() - leavingSinceMs > LEAVING_MS) return;
  await new Promise((resolve) => window.setTimeout(resolve, LEAVING_MS));
}
