// Measures the times of this process's stages, so that the output shows where the time went.

/** {name, ms} of each stage, in the order in which the stages ended. */
const stages = [];

export function timed(name, task) {
  const fromMs = performance.now();
  try {
    return task();
  } finally {
    stages.push({ name, ms: performance.now() - fromMs });
  }
}

/** One line for each time: seconds, then the name. `times`: pairs of name and milliseconds. */
export function timeLines(times) {
  return times.map(([name, ms]) => `${(ms / 1000).toFixed(1).padStart(8)} s  ${name}\n`).join('');
}

export function stageLines() {
  return timeLines(stages.map(({ name, ms }) => [name, ms]));
}
