import { automaticSlots } from '../../engine/planning/plan-slots.js';
import type { DeviceProfile } from '../../engine/emulation/device-profile.js';
import type { ClusterTimes } from '../simulate/cluster-set-up.js';
import type { WorkerBoxes } from './planned-profile.js';

/** Number of slots of a worker when it is not set: as many as the daemon would choose, limited to what the smallest box holds; at least one. */
export function plannedSlots(
  times: ClusterTimes,
  boxes: readonly WorkerBoxes[],
  { devices, model }: DeviceProfile,
): number {
  const { slotBytes, slotSharedBytes } = times.worker;
  const wanted = automaticSlots(model.shape.expertsPerToken, { groupSize: 'auto', workers: null }, slotBytes);
  const held = Math.floor((smallestMemory(boxes, devices) - slotSharedBytes) / slotBytes);
  return Math.max(1, Math.min(wanted, held));
}

/** Memory of the smallest box beside its slots, for its cache. 0 if it does not hold one expert. */
export function spareBytes(
  times: ClusterTimes,
  boxes: readonly WorkerBoxes[],
  { devices }: DeviceProfile,
  slots: number,
): number {
  const { slotBytes, slotSharedBytes, expertBytes } = times.worker;
  const spare = smallestMemory(boxes, devices) - slotSharedBytes - slots * slotBytes;
  return spare < expertBytes ? 0 : Math.floor(spare);
}

function smallestMemory(boxes: readonly WorkerBoxes[], { worker }: DeviceProfile['devices']): number {
  return Math.min(...boxes.map(({ memoryBytes }) => memoryBytes ?? worker.memoryBytes));
}
