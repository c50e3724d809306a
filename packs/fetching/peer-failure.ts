import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';

/** A peer did not give what it was asked for. The code is the peer's: STORAGE_FULL, for example, concerns the peer's disk, not this one's. */
export class PeerFailure extends OdmoeError {}

/** The pack pieces that a peer sends. If they end early for any reason, a PeerFailure is thrown. */
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
