import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { RunPass } from '../pass/pass-member.js';
import type { ContextRoom } from './context-room.js';

/**
 * A pass that the device has no memory for, though the room had reckoned that it has (others live on the same one), runs again as long as
 * something can make room for it: experts of main's own worker, then kept prefixes.
 */
export function retriedWithRoom(runPass: RunPass, room: Pick<ContextRoom, 'makeRoom'>): RunPass {
  return async (slot, rows, ...others) => {
    for (;;) {
      try {
        return await runPass(slot, rows, ...others);
      } catch (thrown) {
        // Each time something is given up, of which there is an end.
        if (toOdmoeError(thrown).code !== 'DEVICE_OUT_OF_MEMORY' || !room.makeRoom()) throw thrown;
        for (const { member, position } of rows) member.sequence.truncate(position);
      }
    }
  };
}
