/** The client is looking for a server all the time, and has to stop that. */
import { testExit } from '../consensus/exit.js';

testExit('zookeeper');
