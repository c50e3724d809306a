export { randomFraction, type Runtime, type Timer } from './runtime.js';
export { SeededRandom } from './seeded-random.js';
export { VirtualClock, type ScheduledEvent } from './virtual-clock.js';
export { VirtualRuntime, WALL_ZERO_MS, type OpenCounts } from './virtual-runtime.js';
export { WallRuntime, type WaitUntil } from './wall-runtime.js';
