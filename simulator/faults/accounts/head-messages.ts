import type { Recorded } from './recorder.js';

/**
 * The record without the executes by which workers run experts of the model's own head, and their results: they decide about drafts alone, and main
 * counts them in no figure. `layers`: expert layers of the model; the head's layer is the one behind them.
 */
export function withoutHead(events: readonly Recorded[], main: string, layers: number): Recorded[] {
  const requests = new Set<string>();
  return events.filter((event) => {
    if (event.kind !== 'message') return true;
    const { from, to, message } = event;
    if (message.kind === 'execute' && from === main && message.execute.layer >= layers) {
      requests.add(`${to} ${message.execute.requestId}`);
      return false;
    }
    return message.kind !== 'result' || !requests.has(`${from} ${message.result.requestId}`);
  });
}
