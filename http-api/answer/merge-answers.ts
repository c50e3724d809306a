import { setMaxListeners } from 'node:events';
import { onAbort } from '../../shared/base/runtime/living.js';

/** Most answers of one request that run at a time; the others wait within the request. */
export const ANSWERS_AT_ONCE = 8;

export type AnswerReplies<Reply> = (signal: AbortSignal) => AsyncGenerator<Reply, void, undefined>;

/**
 * Merges the replies of several answers as they come, each with the answer's number. At most one reply of every answer is fetched ahead. The
 * first failure ends all answers. When the caller's loop ends, all answers have ended too.
 */
export async function* mergeAnswers<Reply>(
  sources: readonly AnswerReplies<Reply>[],
  signal: AbortSignal,
): AsyncGenerator<{ index: number; reply: Reply }, void, undefined> {
  const abort = new AbortController();
  setMaxListeners(0, abort.signal);
  const onGone = (): void => abort.abort();
  const leave = onAbort(signal, onGone);
  if (signal.aborted) onGone();
  const running = new Map<number, AsyncGenerator<Reply, void, undefined>>();
  const awaited = new Map<number, Promise<{ index: number; result: IteratorResult<Reply, void> }>>();
  const ask = (index: number, replies: AsyncGenerator<Reply, void, undefined>): void => {
    awaited.set(
      index,
      replies.next().then((result) => ({ index, result })),
    );
  };
  let next = 0;
  try {
    for (;;) {
      for (; next < sources.length && running.size < ANSWERS_AT_ONCE; next++) {
        const replies = sources[next]?.(abort.signal);
        if (replies === undefined) continue;
        running.set(next, replies);
        ask(next, replies);
      }
      if (awaited.size === 0) return;
      const { index, result } = await Promise.race(awaited.values());
      awaited.delete(index);
      const replies = running.get(index);
      if (result.done === true || replies === undefined) {
        running.delete(index);
        continue;
      }
      yield { index, reply: result.value };
      ask(index, replies);
    }
  } finally {
    leave();
    abort.abort();
    await Promise.allSettled([...awaited.values()]);
    await Promise.allSettled([...running.values()].map((replies) => replies.return()));
  }
}
