import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { RunPass } from '../pass/pass-member.js';
import type { ContextRoom } from './context-room.js';

/**
 * Runs a pass again if the device has no memory for it although the room expected enough (other processes use the same device), as long as something
 * can make room: experts of main's own worker yield, then retained prefixes go.
 */
export function retriedWithRoom(runPass: RunPass, room: Pick<ContextRoom, 'makeRoom'>): RunPass {
  return async (slot, rows, ...others) => {
    for (;;) {
      try {
        return await runPass(slot, rows, ...others);
      } catch (thrown) {
        // Each round gives up some memory, so this ends.
        if (toOdmoeError(thrown).code !== 'DEVICE_OUT_OF_MEMORY' || !room.makeRoom()) throw thrown;
        for (const { member, position } of rows) member.sequence.truncate(position);
      }
    }
  };
}
