import { toOdmoeError } from '../../shared/errors/odmoe-error.js';
import type { RunPass } from '../pass/pass-member.js';
import type { ContextRoom } from './context-room.js';

/**
 * A pass that the device has no memory for, though the room had reckoned that it has (others live on the same one), runs once more when all
 * kept prefixes have been dropped.
 */
export function retriedWithRoom(runPass: RunPass, room: Pick<ContextRoom, 'dropPrefixes'>): RunPass {
  return async (slot, rows, ...others) => {
    try {
      return await runPass(slot, rows, ...others);
    } catch (thrown) {
      if (toOdmoeError(thrown).code !== 'DEVICE_OUT_OF_MEMORY' || !room.dropPrefixes()) throw thrown;
      for (const { member, position } of rows) member.sequence.truncate(position);
      return runPass(slot, rows, ...others);
    }
  };
}
