import type { Chapter } from './chapter.js';
import { Scene } from './scene.js';
import type { Servers } from './servers.js';

export interface Played {
  readonly naive: Scene;
  readonly holdfast: Scene;
}

/** Rejects where anything that the chapter says was not seen. */
export async function play(chapter: Chapter, servers: Servers): Promise<Played> {
  const naive = new Scene();
  await chapter.naive(naive, servers);
  const holdfast = new Scene();
  await chapter.holdfast(holdfast, servers);
  return { naive, holdfast };
}
