/** Answers calls at a server, over any transport: it checks the caller, decodes the request, runs the handler, and encodes its replies. */
import { toOdmoeError } from '../base/errors/odmoe-error.js';
import type { Logger } from '../base/log/logger.js';
import { onAbort } from '../base/runtime/living.js';
import { waitForPeer } from '../base/runtime/peer-wait.js';
import type { Runtime } from '../base/runtime/runtime.js';
import { callRefusal } from './call-permission.js';
import type { PeerContext } from './peer-context.js';
import type { PeerStream } from './peer-stream.js';
import { logFault, readsTooSlowly } from './rpc-errors.js';
import type { Handler, ServedMethod } from './served-methods.js';
import type { StreamMethod } from './methods.js';
import type { PeerMessage } from './stream-pace.js';

export interface Caller {
  readonly peer: PeerContext;
  /** Its name in the log. */
  readonly name: string;
}

/** The caller of a method with many replies. */
export interface RepliesCaller extends Caller {
  /** `taken`: called when the number of unread replies has become smaller. */
  send(reply: Buffer, taken: () => void): void;
  /** Replies that were sent and that the caller has not taken yet. */
  unread(): number;
}

export interface AnswerLimits {
  readonly log: Logger;
  readonly runtime: Runtime;
  /** A caller that takes no reply for this long is given up. */
  readonly slowReaderLimitMs: number;
}

/** One request, one reply, which the caller still has to get. Rejects with the OdmoeError for the caller. */
export async function answerCall(
  { method, handle }: Extract<ServedMethod, { shape: 'call' }>,
  request: Buffer,
  { peer, name }: Caller,
  log: Logger,
): Promise<Buffer> {
  try {
    requireAllowed(method, peer);
    return method.reply.encode(await handle(method.request.decode(request), peer));
  } catch (thrown) {
    logFault(log, method, name, thrown);
    throw toOdmoeError(thrown);
  }
}

/**
 * One request, many replies at the caller's pace. `gone` aborts when the caller goes away. Resolves when all replies are sent or the caller is
 * gone. Rejects with the OdmoeError for the caller.
 */
export async function answerReplies(
  { method, handle }: Extract<ServedMethod, { shape: 'replies' }>,
  request: Buffer,
  caller: RepliesCaller,
  gone: AbortSignal,
  { log, runtime, slowReaderLimitMs }: AnswerLimits,
): Promise<void> {
  let wake: () => void = () => undefined;
  const room = (): Promise<void> =>
    new Promise((resolve, reject) => {
      const timer = waitForPeer(runtime, slowReaderLimitMs, () => reject(readsTooSlowly(slowReaderLimitMs)));
      wake = () => {
        timer.cancel();
        resolve();
      };
    });
  const leave = onAbort(gone, () => wake());
  try {
    requireAllowed(method, caller.peer);
    for await (const reply of handle(method.request.decode(request), gone, caller.peer)) {
      if (gone.aborted) return;
      caller.send(method.reply.encode(reply), () => wake());
      while (caller.unread() >= method.heldByServer && !gone.aborted) await room();
    }
  } catch (thrown) {
    if (gone.aborted) return;
    logFault(log, method, caller.name, thrown);
    throw toOdmoeError(thrown);
  } finally {
    leave();
  }
}

/** Hands a stream that a peer has opened to its handler. A caller that may not open it gets the reason, and the stream ends. */
export function answerStream<Request extends PeerMessage, Reply extends PeerMessage>(
  method: StreamMethod<Request, Reply>,
  handle: Handler<StreamMethod<Request, Reply>>,
  stream: PeerStream<Reply, Request>,
  peer: PeerContext,
): void {
  const refusal = callRefusal(method, peer);
  if (refusal === null) handle(stream, peer);
  else stream.close(refusal);
}

/** Throws NOT_ALLOWED. */
function requireAllowed(method: Parameters<typeof callRefusal>[0], peer: PeerContext): void {
  const refusal = callRefusal(method, peer);
  if (refusal !== null) throw refusal;
}
