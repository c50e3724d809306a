import { parentPort } from 'node:worker_threads';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ThreadAnswer, ThreadQuestion } from './thread-queue.js';

/** Runs in a thread of a lane: answers one question after another. `transferOf`: memory of a result that is transferred without a copy. */
export function answerQuestions<Request, Result>(
  answer: (request: Request) => Promise<Result>,
  transferOf: (result: Result) => readonly ArrayBuffer[] = () => [],
): void {
  const answered = async ({ id, request }: ThreadQuestion<Request>): Promise<ThreadAnswer<Result>> => {
    try {
      return { id, kind: 'done', result: await answer(request) };
    } catch (thrown) {
      const { code, message, field } = toOdmoeError(thrown);
      return { id, kind: 'error', code, message, field };
    }
  };
  parentPort?.on('message', (question: ThreadQuestion<Request>) => {
    void answered(question).then((answer) => {
      parentPort?.postMessage(answer, answer.kind === 'done' ? [...transferOf(answer.result)] : []);
    });
  });
}
