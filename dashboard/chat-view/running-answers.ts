import { chatState, update } from './chat-state.js';
import { tellTabs, THIS_TAB } from './tab-channel.js';

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
