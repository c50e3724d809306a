// mocha's own spec reporter, which also writes a file of counts: how many tests passed, failed and were skipped, the texts of failures, and
// the time of each test file. ODMOE_TEST_COUNTS is the path of that file.
const { writeFileSync } = require('node:fs');
const { relative } = require('node:path');
const { Runner, reporters } = require('mocha');

/** Most characters of a failure that the file of counts has. */
const FAILURE_SHOWN_LIMIT = 2000;

class CountingReporter extends reporters.Spec {
  constructor(runner, options) {
    super(runner, options);
    const path = process.env.ODMOE_TEST_COUNTS;
    if (path === undefined) return;
    const fileMs = {};
    const failures = [];
    runner.on(Runner.constants.EVENT_TEST_FAIL, (test, error) => {
      const file = relative('dist', test.file ?? '');
      failures.push(`${file}: ${test.fullTitle()}\n${error.stack ?? error.message}`.slice(0, FAILURE_SHOWN_LIMIT));
    });
    // Hooks count, too, because they start and stop the clusters of many tests.
    for (const ended of [Runner.constants.EVENT_TEST_END, Runner.constants.EVENT_HOOK_END]) {
      runner.on(ended, ({ file, duration }) => {
        if (file === undefined) return;
        const name = relative('dist', file);
        fileMs[name] = (fileMs[name] ?? 0) + (duration ?? 0);
      });
    }
    runner.once(Runner.constants.EVENT_RUN_END, () => {
      const { passes: passed, failures: failed, pending: skipped } = runner.stats;
      writeFileSync(path, JSON.stringify({ passed, failed, skipped, failures, fileMs }));
    });
  }
}

module.exports = CountingReporter;
