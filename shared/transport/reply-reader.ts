import type { ClientReadableStream } from '@grpc/grpc-js';
import { OdmoeError } from '../base/errors/odmoe-error.js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import type { Runtime } from '../base/runtime/runtime.js';
import type { RepliesMethod } from './methods.js';
import { fromServiceError } from './rpc-errors.js';

type RepliesRules = Pick<RepliesMethod<object, object>, 'lostCode' | 'isOfMain' | 'heldByCaller'>;

/**
 * The call's messages in order. If an error follows, all messages before it are delivered first; then the error is thrown. `rules`: of the method.
 * `idleLimitMs`: the longest wait for a next message; after it the call is cancelled and fails with the lost code. The reader's own pauses do not count.
 */
export async function* readReplies(
  call: ClientReadableStream<Buffer>,
  peer: string,
  rules: RepliesRules,
  runtime: Runtime,
  idleLimitMs = Infinity,
): AsyncGenerator<Buffer, void, undefined> {
  const { heldByCaller: heldLimit } = rules;
  const arrived: Buffer[] = [];
  let error: OdmoeError | null = null;
  let ended = false;
  let wake: () => void = () => undefined;
  call.on('data', (bytes: Buffer) => {
    arrived.push(bytes);
    if (arrived.length >= heldLimit) call.pause();
    wake();
  });
  call.on('error', (thrown: unknown) => {
    error = fromServiceError(thrown, rules, peer);
  });
  call.on('end', () => {
    ended = true;
    wake();
  });
  for (;;) {
    const next = arrived.shift();
    if (next !== undefined) {
      if (call.isPaused() && arrived.length < heldLimit / 2) call.resume();
      yield next;
    } else if (ended) {
      // grpc-js may emit 'error' beside 'end'; this lets that error arrive first.
      await new Promise<void>((resolve) => runtime.nextTurn(resolve));
      if (error !== null) throw error as OdmoeError;
      return;
    } else if (!(await arrives((resolve) => (wake = resolve), runtime, idleLimitMs))) {
      call.cancel();
      throw new OdmoeError(
        rules.lostCode,
        `${peer} has sent nothing for ${idleLimitMs / 1000} s: is it overloaded or suspended?`,
      );
    }
  }
}

/** False if the limit passes first; Infinity: no limit. */
function arrives(listen: (resolve: () => void) => void, runtime: Runtime, limitMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = Number.isFinite(limitMs) ? waitForPeer(runtime, limitMs, () => resolve(false)) : null;
    listen(() => {
      timer?.cancel();
      resolve(true);
    });
  });
}
