import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** A peer did not give what it was asked for. Its code is the peer's: a full disk there is none here. */
export class PeerFailure extends OdmoeError {}

/** What a peer sends; whatever ends it before its end is a PeerFailure. */
export async function* fromPeer(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  const iterator = pieces[Symbol.asyncIterator]();
  try {
    for (;;) {
      const next = await iterator.next().catch((thrown: unknown) => {
        const { code, message } = toOdmoeError(thrown);
        throw new PeerFailure(code, message, { cause: thrown });
      });
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    await iterator.return?.();
  }
}
