import type { Recorded } from './recorder.js';

/**
 * The record without the executes by which workers run experts of the model's own head, and their results: they decide about drafts alone, and main
 * counts them in no figure. `layers`: expert layers of the model; the head's layer is the one behind them. Each link numbers its requests from 1: a number of the head
 * is free again once its last result has arrived, or main uses it for the model on a new link.
 */
export function withoutHead(events: readonly Recorded[], main: string, layers: number): Recorded[] {
  const requests = new Set<string>();
  return events.filter((event) => {
    if (event.kind !== 'message') return true;
    const { way, from, to, message } = event;
    if (message.kind === 'execute' && from === main) {
      const request = `${to} ${message.execute.requestId}`;
      const isOfHead = message.execute.layer >= layers;
      if (isOfHead) requests.add(request);
      else requests.delete(request);
      return !isOfHead;
    }
    if (message.kind !== 'result') return true;
    const request = `${from} ${message.result.requestId}`;
    const isOfHead = requests.has(request);
    if (way === 'arrived' && message.result.last) requests.delete(request);
    return !isOfHead;
  });
}
